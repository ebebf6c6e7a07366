"""A stand-in for Brev: its command line, an account, and instances that are real SSH servers.

`brev_emulator.emulator.BrevEmulator` is the handle for tests; ``python -m brev_emulator DIR``
sets one up to play with (docs/rehearsal.md).
"""
