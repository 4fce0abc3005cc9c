"""Building blocks that QReward 0.1.7 exported; `schedule` does not need them.

They keep their behaviour, stand on `qreward.policy` where it decides the same, and are imported from
`qreward.utils.scheduler`.
"""
