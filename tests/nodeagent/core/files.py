"""Settings files as the documents of their systems have them."""

from __future__ import annotations

# ClearML CFGI >= 1.3.0.
CLEARML = """
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    # Edit the following configuration as needed.
    resources:
      - name: nvidia.com/gpu
        rename: nvidia.com/gpu-0
        devices:
          - "0"
        replicas: 8
      - name: nvidia.com/gpu
        rename: nvidia.com/gpu-1
        devices:
          - "1"
        replicas: 8
"""
# ClearML CFGI < 1.3.0.
CLEARML_OLD = """
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    resources:
      - name: nvidia.com/gpu
        replicas: 8
"""
# NVIDIA's README: all flags.
NVIDIA = """
version: v1
flags:
  migStrategy: "none"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: "envvar"
    deviceIDStrategy: "uuid"
"""
NVIDIA_SHARED = """
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - name: nvidia.com/gpu
      replicas: 10
"""
# The values of iktos' chart that its plug-in reads.
IKTOS = """
legacyDaemonsetAPI: false
compatWithCPUManager: false
migStrategy: none
failOnInitError: true
deviceListStrategy: envvar
deviceIDStrategy: uuid
nvidiaDriverRoot: "/"
resourceConfig: gpu:gpu-mem-gb:-1
runtimeClassName: null
"""
