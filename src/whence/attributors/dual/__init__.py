"""DualDA: attribution by the dual of a support vector machine."""
