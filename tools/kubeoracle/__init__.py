"""Where kube-scheduler's own plug-ins let a pod be, against where Moorage lets it be (docs/design/rules.md)."""
