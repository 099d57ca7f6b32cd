"""kernel-builder: build, check and publish Hub kernels from a ``build.toml``, without Nix."""

__version__ = "0.1.0"
