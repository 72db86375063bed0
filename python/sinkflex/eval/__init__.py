"""`sinkflex eval`: measure any agent on a suite, honestly and resumably. Start reading at runner.py."""
