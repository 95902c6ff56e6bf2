from smp_data.command_line import main_of_process

if __name__ == "__main__":
    main_of_process()
