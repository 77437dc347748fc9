"""The surrogate of a model's last layer: fitting, scores, effects, agreement, updates."""
