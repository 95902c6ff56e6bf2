from stand_in import TrainerConfig


class Trainer:
    Config = TrainerConfig
