"""Offline scoring: a file of prompts and pictures in, the same rows with one column per sub-metric out."""

from reward_service.offline.job import Prepared, ScoreJob, prepare
from reward_service.offline.rows import Columns
from reward_service.offline.tally import Stats, Tally

__all__ = ["Columns", "Prepared", "ScoreJob", "Stats", "Tally", "prepare"]
