"""Stories of placement, one scenario each, told to kube-scheduler and to Moorage."""
