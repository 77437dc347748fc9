"""Problems whose λ have box constraints."""
