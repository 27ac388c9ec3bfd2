"""What operators of collectors need beside the commands: settings from the environment, status, doctor, drill."""
