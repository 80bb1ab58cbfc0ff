// A training process as a pool sees it: weights, optimizer state, and steps of a second or more in
// which activations come layer by layer and go in reverse while gradients are made, with buckets
// that a second stream communicates.
//
// Thread safety: none. Cost: about 80 requests a step.
#ifndef GPUPOOL_TESTS_SCENARIOS_TRAINING_H_
#define GPUPOOL_TESTS_SCENARIOS_TRAINING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

struct TrainingShape {
  std::uint64_t weights_bytes = gib(10);
  double optimizer_ratio = 1.5;  // of the weights
  std::uint64_t activation_bytes = gib(15);
  int layers = 12;
  double step_seconds = 2;
  /// Each step is between 1 - this and 1 times as large: dynamic shapes.
  double spread = 0.1;
  double load_seconds = 60;

  /// What it has in use at the peak of its largest step.
  std::uint64_t peak_bytes() const;
};

/// Ranges of real jobs on a card of 80 GiB: 25 to 50 GiB at the peak.
TrainingShape draw_training(Run& run);

class Training {
 public:
  /// Loads weights and optimizer, in `load_seconds`.
  Training(Run& run, Process& process, const TrainingShape& shape);

  /// One step; its activations are `scale` times as large.
  void step(double scale = 1);
  /// Steps until `seconds` have gone by; `after_each` is called after each one.
  void train(double seconds, const std::function<void()>& after_each = {}, double scale = 1);
  /// Gives everything back.
  void finish();
  const TrainingShape& shape() const { return shape_; }
  Process& process() { return process_; }

 private:
  struct Layer {
    std::vector<void*> activations;
  };

  void forward(double scale);
  void backward();

  Run& run_;
  Process& process_;
  TrainingShape shape_;
  std::vector<void*> state_;
  std::vector<Layer> layers_;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_TRAINING_H_
