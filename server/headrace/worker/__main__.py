"""`python -m headrace.worker`."""

from headrace.worker.arguments import parse_arguments
from headrace.worker.process import die_with_parent, set_waiting_policy

if __name__ == "__main__":
    die_with_parent()
    arguments = parse_arguments()
    set_waiting_policy(arguments.compute_threads)
    # torch reads the environment when it is imported.
    from headrace.worker.main import main

    main(arguments)
