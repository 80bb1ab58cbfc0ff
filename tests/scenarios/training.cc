#include "tests/scenarios/training.h"

#include <algorithm>

namespace gpupool::test {
namespace {

// Parts of a layer's activations: attention, its output, and what the MLP keeps.
constexpr double kParts[] = {0.45, 0.2, 0.35};
constexpr int kStateTensors = 96;

}  // namespace

std::uint64_t TrainingShape::peak_bytes() const {
  const auto state = static_cast<double>(weights_bytes) * (1 + optimizer_ratio);
  const double gradients = 2.0 * static_cast<double>(weights_bytes) / layers;
  return static_cast<std::uint64_t>(state + gradients) + activation_bytes;
}

TrainingShape draw_training(Run& run) {
  TrainingShape shape;
  shape.weights_bytes = run.bytes_between(5, 10);
  shape.optimizer_ratio = run.between(1, 2);
  shape.activation_bytes = run.bytes_between(12, 20);
  shape.layers = static_cast<int>(run.between(8, 16));
  shape.step_seconds = run.between(1, 3);
  shape.spread = run.between(0.02, 0.2);
  shape.load_seconds = run.between(20, 90);
  return shape;
}

Training::Training(Run& run, Process& process, const TrainingShape& shape)
    : run_(run), process_(process), shape_(shape) {
  const std::uint64_t optimizer =
      static_cast<std::uint64_t>(static_cast<double>(shape.weights_bytes) * shape.optimizer_ratio);
  for (int i = 0; i < kStateTensors; ++i) {
    state_.push_back(process.take(shape.weights_bytes / kStateTensors, "weights"));
    run.pass(shape.load_seconds / kStateTensors);
  }
  for (int i = 0; i < kStateTensors; ++i) {
    state_.push_back(process.take(optimizer / kStateTensors, "optimizer"));
  }
}

void Training::forward(double scale) {
  const double pause = 0.35 * shape_.step_seconds / shape_.layers;
  layers_.resize(static_cast<std::size_t>(shape_.layers));
  const double layer_bytes = scale * static_cast<double>(shape_.activation_bytes) / shape_.layers;
  for (Layer& layer : layers_) {
    void* scratch = process_.take(static_cast<std::uint64_t>(0.1 * layer_bytes), "activations");
    for (const double part : kParts) {
      layer.activations.push_back(
          process_.take(static_cast<std::uint64_t>(part * layer_bytes), "activations"));
    }
    process_.give(scratch);
    process_.compute(0.9 * pause);
    run_.pass(pause);
  }
}

void Training::backward() {
  const double pause = 0.6 * shape_.step_seconds / shape_.layers;
  const std::uint64_t bucket = shape_.weights_bytes / static_cast<std::uint64_t>(shape_.layers);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    void* gradient = process_.take(bucket, "gradients");
    process_.compute(0.9 * pause);
    void* sent = process_.take_beside(bucket / 4, "communication");
    process_.compute_beside(0.5 * pause);
    run_.pass(pause);
    for (void* block : layers_[i].activations) process_.give(block);
    layers_[i].activations.clear();
    process_.give_beside(sent);
    process_.give(gradient);
  }
}

void Training::step(double scale) {
  forward(scale * run_.between(1 - shape_.spread, 1));
  backward();
  run_.pass(0.05 * shape_.step_seconds);  // the optimizer
}

void Training::train(double seconds, const std::function<void()>& after_each, double scale) {
  const double end = run_.now() + seconds;
  while (run_.now() < end) {
    step(scale);
    if (after_each) after_each();
  }
}

void Training::finish() {
  for (void* block : state_) process_.give(block);
  state_.clear();
}

}  // namespace gpupool::test
