"""What each scenario that fails must be announced by, and how far ahead."""

MINUTES_AHEAD = 10  # of what builds up
SECONDS_AFTER_CAUSE = 60  # of what comes at once

# Those alerts that are about the scenario's cause: whoever reads the runbook of one finds it.
ANNOUNCED_BY = {
    "slow_leak": ("GpupoolMemoryLeakSuspected", "GpupoolExhaustionPredicted"),
    "leak_under_saw_tooth": ("GpupoolMemoryLeakSuspected", "GpupoolExhaustionPredicted"),
    "growing_kv_cache": ("GpupoolExhaustionPredicted",),
    "longer_sequences": ("GpupoolExhaustionPredicted",),
    "captured_graphs": ("GpupoolExhaustionPredicted",),
    "hung_stream": ("GpupoolPendingFreesStuck",),
    "growing_neighbour": ("GpupoolNearCapacity", "GpupoolPeakNoLongerFits",
                          "GpupoolExhaustionPredicted"),
    "shrinking_cache": ("GpupoolFragmentationHigh", "GpupoolFragmentationCritical",
                        "GpupoolLargestBlockBelowRequired"),
    "holes_after_evaluation": ("GpupoolFragmentationCritical", "GpupoolLargestBlockBelowRequired"),
    "neighbour_takes_card": ("GpupoolNearCapacity", "GpupoolPeakNoLongerFits"),
    "limit_cut": ("GpupoolPeakNoLongerFits",),
}

# A benign scenario about a value that hovers around a threshold: this alert may fire once.
MAY_FIRE_ONCE = {"hovering": "GpupoolFragmentationHigh"}

# (scenario, seed) to why the target is not met. Shown as such; one that is met after all is a fault.
SHORTFALLS = {
    ("growing_kv_cache", 2): "full within 50 minutes, of which 35 may be a warm-up",
}
