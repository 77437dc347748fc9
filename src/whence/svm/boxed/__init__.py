"""Problems whose λ each lie in an interval of their own."""
