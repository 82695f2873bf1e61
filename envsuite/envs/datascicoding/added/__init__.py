"""Tables that users add: reading, checks, splits and storage behind `envsuite data add FILE --target COLUMN`."""
