"""Parts that several commands share: flags, the runs of a call, previews and progress bars."""
