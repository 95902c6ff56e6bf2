from stand_in import TrainerConfig


def llama3_8b():
    return TrainerConfig()
