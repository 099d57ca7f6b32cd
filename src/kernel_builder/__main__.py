"""``python -m kernel_builder`` is ``kernel-builder``."""

from kernel_builder.cli import main

if __name__ == "__main__":
    main()
