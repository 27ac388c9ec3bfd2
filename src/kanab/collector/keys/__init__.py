"""Keys of open cohorts, and the encryption of records: ``keyring.Keyring`` and ``encryption.RecordCipher``."""
