"""The same rules, and the scraping, as objects of the Prometheus operator."""
import textwrap

HEADER = """\
# Written by configs/rules/generate.py from configs/rules/values.yaml; change those.
"""


def metadata(values):
    return (f"metadata:\n  name: gpupool\n  labels:\n    app.kubernetes.io/name: gpupool\n"
            f"    release: {values['kubernetes']['release']}\n")


def prometheus_rule(values, groups):
    return (HEADER + "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n" +
            metadata(values) + "spec:\n" + textwrap.indent(groups, "  ", lambda line: line.strip()))


POD_MONITOR = """\
# A container names one port for each of its ranks:
#
#   ports:
#     - {name: gpupool-0, containerPort: 10064}
#     - {name: gpupool-1, containerPort: 10065}
#
# and its YAML has exporter.bind 0.0.0.0. A named port that nobody listens on is a target that is
# down, so name as many as the pod has ranks. The pod carries the label app.kubernetes.io/part-of
# with the value gpupool.
"""


def endpoint(values, local_rank):
    interval = values["rules"]["interval"]
    label = values["kubernetes"]["job_label"]
    meta = "__meta_kubernetes_pod_label_" + "".join(c if c.isalnum() else "_" for c in label)
    return f"""\
    - port: gpupool-{local_rank}
      path: /metrics
      interval: {interval}
      scrapeTimeout: 10s
      relabelings:
        - sourceLabels: [{meta}]
          targetLabel: job_id
        - targetLabel: local_rank
          replacement: "{local_rank}"
        - sourceLabels: [__meta_kubernetes_pod_node_name]
          targetLabel: host
      honorLabels: true
"""


def pod_monitor(values):
    endpoints = "".join(endpoint(values, rank) for rank in range(values["kubernetes"]["ports"]))
    return (HEADER + POD_MONITOR + "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\n" +
            metadata(values) + """\
spec:
  namespaceSelector:
    any: true
  selector:
    matchLabels:
      app.kubernetes.io/part-of: gpupool
  # Bounds, so that no mistake in one process harms the server.
  sampleLimit: 2000
  labelLimit: 24
  labelNameLengthLimit: 64
  labelValueLengthLimit: 200
  bodySizeLimit: 2MB
  podMetricsEndpoints:
""" + endpoints)
