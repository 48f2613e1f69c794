"""The engine: requests from any thread, one scheduler, one thread that steps the model."""
