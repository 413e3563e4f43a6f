"""What others reach at the same work, on the same machine, in the same run. None of it is needed to use Motet."""
