"""What a user sees and keeps of a run while it goes on."""
