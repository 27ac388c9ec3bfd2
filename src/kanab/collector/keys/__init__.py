"""Keys of open cohorts, and the encryption of records.

Others import ``keyring.Keyring`` and ``encryption.RecordCipher``.
"""
