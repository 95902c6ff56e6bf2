"""smp-data: from files of text to tokens that smp trains on. See docs/smp-data.md."""
