"""The multiclass support vector machine of Crammer and Singer."""
