from stand_in import FullAC, SelectiveAC  # noqa: F401
