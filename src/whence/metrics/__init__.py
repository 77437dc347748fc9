"""Metrics: functions of scores and labels."""
