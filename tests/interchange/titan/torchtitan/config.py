from stand_in import ParallelismConfig, TrainingConfig  # noqa: F401
