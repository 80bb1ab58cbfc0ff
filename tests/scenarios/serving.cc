#include "tests/scenarios/serving.h"

#include <algorithm>
#include <cmath>

namespace gpupool::test {
namespace {

constexpr double kStepSeconds = 0.5;
constexpr int kWeightTensors = 64;

}  // namespace

ServingShape draw_serving(Run& run) {
  ServingShape shape;
  shape.weights_bytes = run.bytes_between(14, 30);
  shape.block_bytes = mib(std::floor(run.between(8, 33)));
  shape.mean_blocks = run.between(16, 40);
  shape.blocks_per_second = run.between(1, 3);
  // So that about 10 to 16 GiB are in use at load 1: requests at a time times half their blocks.
  const double blocks = static_cast<double>(run.bytes_between(10, 16) / shape.block_bytes);
  const double at_a_time = blocks / (0.5 * shape.mean_blocks);
  shape.requests_per_second = at_a_time * shape.blocks_per_second / shape.mean_blocks;
  return shape;
}

Serving::Serving(Run& run, Process& process, const ServingShape& shape)
    : run_(run), process_(process), shape_(shape) {
  for (int i = 0; i < kWeightTensors; ++i) {
    weights_.push_back(process.take(shape.weights_bytes / kWeightTensors, "weights"));
    run.pass(0.5);
  }
}

void Serving::admit(double load, double length) {
  arrivals_ += kStepSeconds * load * shape_.requests_per_second * run_.between(0, 2);
  for (; arrivals_ >= 1; arrivals_ -= 1) {
    Request request;
    // Most answers are short, some are four times the mean.
    const double draw = -std::log(1 - run_.between(0, 0.98));
    request.wanted = std::max(1.0, length * shape_.mean_blocks * draw);
    if (cache_bytes() < shape_.cache_limit_bytes) requests_.push_back(std::move(request));
  }
}

void Serving::step(double load, double length) {
  admit(load, length);
  void* scratch = process_.take(mib(96), "activations");
  for (auto request = requests_.begin(); request != requests_.end();) {
    request->due += kStepSeconds * shape_.blocks_per_second * run_.between(0.5, 1.5);
    // Where the cache is full a request is put off, and begins anew elsewhere.
    const bool is_done = request->due >= request->wanted ||
                         cache_bytes() + shape_.block_bytes > shape_.cache_limit_bytes;
    while (!is_done && static_cast<double>(request->blocks.size()) < request->due) {
      request->blocks.push_back(process_.take(shape_.block_bytes, "activations"));
      ++cache_blocks_;
    }
    if (!is_done) {
      ++request;
      continue;
    }
    for (void* block : request->blocks) process_.give(block);
    cache_blocks_ -= request->blocks.size();
    request = requests_.erase(request);
  }
  process_.compute(0.8 * kStepSeconds);
  process_.give(scratch);
  run_.pass(kStepSeconds);
}

void Serving::serve(double seconds, const std::function<double()>& load,
                    const std::function<double()>& length) {
  const double end = run_.now() + seconds;
  while (run_.now() < end) step(load ? load() : 1, length ? length() : 1);
}

void Serving::drain() {
  while (!requests_.empty()) step(0, 1);
}

}  // namespace gpupool::test
