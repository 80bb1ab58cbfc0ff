#include "tests/support/generator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

class Generator {
 public:
  Generator(std::uint64_t seed, const GeneratorOptions& options)
      : random_(seed * 0x2545f4914f6cdd1dULL + 1), options_(options) {
    world_.backing = options.backing;
    world_.lets_others_in = options.with_others;
    world_.memory = options.memory;
    world_.capacity_bytes = random_.pick(std::array{16 * kMiB, 48 * kMiB, 96 * kMiB, 256 * kMiB});
    if (random_.one_in(4)) world_.reserve_bytes = random_.between(1, 8) * 2 * kMiB;
    world_.stream_count = static_cast<StreamSlot>(random_.between(1, 6));
    world_.cache_small_bytes = random_.pick(std::array{std::uint64_t{0}, 64 * kKiB, 4 * kMiB});
    world_.cache_large_bytes = random_.pick(std::array{std::uint64_t{0}, 4 * kMiB, 32 * kMiB});
    size_kind_ = random_.below(5);
    fill_percent_ = random_.between(20, 110);
    world_.recycling = options.recycling;
    world_.alias_reuse = options.alias_reuse;
    world_.policy = options.policy;
    if (options.has_one_stream) world_.stream_count = 1;
    if (options.recycling != Recycling::off) {
      world_.owes_empty_pages = true;
      world_.slack = random_.pick(std::array{0.0, 0.005, 0.05, 1.0});
    }
  }

  Scenario make() {
    Scenario scenario;
    while (scenario.list.size() < options_.operations) scenario.list.push_back(next());
    scenario.world = world_;
    return scenario;
  }

 private:
  StreamSlot any_stream() { return static_cast<StreamSlot>(random_.below(world_.stream_count)); }
  BlockName any_block() {
    if (live_.empty()) return 0;
    // Young blocks are freed more often than old ones, so that a few live long.
    const std::uint64_t back = std::min(random_.below(live_.size()), random_.below(live_.size()));
    return live_[live_.size() - 1 - back].name;
  }

  std::uint64_t any_size() {
    // Programs ask for the same few sizes again and again; caches live on that.
    if (!usual_sizes_.empty() && random_.below(10) < 7) {
      return usual_sizes_[random_.below(usual_sizes_.size())];
    }
    const std::uint64_t size = new_size();
    if (usual_sizes_.size() < 6) usual_sizes_.push_back(size);
    return size;
  }

  std::uint64_t new_size() {
    const std::uint64_t kind = size_kind_ == 4 || random_.one_in(5) ? random_.below(4) : size_kind_;
    switch (kind) {
      case 0: return random_.between(1, 32 * kKiB);
      case 1: return random_.between(16 * kKiB, 160 * kKiB);
      case 2: return random_.between(128 * kKiB, 4 * kMiB);
      default: return random_.between(1 * kMiB, world_.capacity_bytes / 3);
    }
  }

  Operation allocate() {
    Allocate it;
    it.block = ++last_name_;
    it.bytes = any_size();
    it.stream = any_stream();
    it.tag = static_cast<std::uint8_t>(random_.below(7));
    it.is_raw = random_.one_in(8);
    if (random_.one_in(6)) it.alignment = std::uint64_t{1} << random_.between(0, 21);
    if (random_.one_in(24)) it.allocation_class = AllocationClass::contiguous;
    if (random_.one_in(100)) {
      it.bytes = random_.pick(std::array{std::uint64_t{0}, std::uint64_t{1}, world_.capacity_bytes,
                                         world_.capacity_bytes + 1, std::uint64_t{1} << 63,
                                         ~std::uint64_t{0}});
    }
    live_.push_back({it.block, it.bytes < world_.capacity_bytes ? it.bytes : 0});
    live_bytes_ += live_.back().bytes;
    return it;
  }

  Operation free() {
    if (live_.empty()) return Maintain{};
    const BlockName name = any_block();
    forget(name);
    Free it{name, any_stream(), SizeHint::none, random_.one_in(8)};
    if (random_.one_in(3)) it.hint = random_.one_in(8) ? SizeHint::wrong : SizeHint::right;
    return it;
  }

  void forget(BlockName name) {
    const auto found = std::find_if(live_.begin(), live_.end(),
                                    [name](const Live& live) { return live.name == name; });
    live_bytes_ -= found->bytes;
    live_.erase(found);
  }

  Operation launch() {
    const std::uint64_t duration = random_.one_in(2) ? 0 : random_.between(1, 50'000);
    return Launch{any_block(), any_stream(), duration};
  }

  Operation on_streams() {
    if (random_.one_in(3)) return new_stream(any_stream());
    const StreamSlot slot = any_stream();
    if (random_.one_in(2) && !live_.empty()) {
      // The stream ends right after it freed something that is in use.
      const BlockName name = any_block();
      forget(name);
      queued_.push_back(Launch{name, slot, 0});
      queued_.push_back(Free{name, slot, SizeHint::none, false});
    }
    queued_.push_back(ReleaseStream{slot});
    // Mostly at once, so that the handle is given again while the old stream's work still runs.
    if (!random_.one_in(4)) queued_.push_back(new_stream(slot));
    if (random_.one_in(2)) queued_.push_back(Maintain{});
    return DrainCaches{};
  }

  /// Neighbours that several streams use, freed in any order, and then asked for as one.
  Operation share_neighbours() {
    const std::uint64_t count = random_.between(3, 8);
    const std::uint64_t bytes =
        std::min(random_.between(33, 400) * 4 * kKiB, world_.capacity_bytes / 16);
    const StreamSlot owner = any_stream();
    std::vector<BlockName> names;
    for (std::uint64_t i = 0; i < count; ++i) {
      names.push_back(++last_name_);
      queued_.push_back(Allocate{.block = last_name_, .bytes = bytes, .stream = owner});
      for (std::uint64_t users = random_.below(4); users > 0; --users) {
        const StreamSlot user = any_stream();
        queued_.push_back(Launch{last_name_, user, 0});
        queued_.push_back(RecordStream{last_name_, user});
      }
    }
    while (!names.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random_.below(names.size()));
      queued_.push_back(Free{names[static_cast<std::size_t>(at)], any_stream()});
      names.erase(names.begin() + at);
      if (random_.one_in(3)) queued_.push_back(CompleteStream{any_stream()});
      if (random_.one_in(3)) queued_.push_back(Maintain{});
    }
    for (std::uint64_t i = random_.between(1, 3); i > 0; --i) {
      queued_.push_back(Allocate{.block = ++last_name_,
                                 .bytes = bytes * random_.between(1, count),
                                 .stream = any_stream()});
      queued_.push_back(Free{last_name_, any_stream()});
    }
    return Maintain{};
  }

  Operation new_stream(StreamSlot slot) {
    return NewStream{slot, !options_.with_unannounced_streams || random_.one_in(4)};
  }

  Operation fault() {
    if (!options_.with_faults) return Maintain{};
    return FailNext{static_cast<BackendCall>(random_.below(kBackendCallCount)),
                    random_.between(1, 4),
                    random_.one_in(2) ? Error::out_of_memory : Error::backend_failure};
  }

  Operation next() {
    if (!queued_.empty()) {
      const Operation operation = queued_.front();
      queued_.pop_front();
      return operation;
    }
    // Now and then a burst of one kind: a whole iteration's frees, a queue that fills up.
    if (burst_left_ > 0) {
      --burst_left_;
    } else {
      burst_kind_ = random_.below(100);
      if (random_.one_in(30)) burst_left_ = random_.between(5, 40);
    }
    if (random_.one_in(80)) return share_neighbours();
    const std::uint64_t kind = burst_kind_;
    if (kind < 60) {
      const bool is_full = live_bytes_ > world_.capacity_bytes * fill_percent_ / 100;
      return random_.one_in(is_full ? 5 : 2) ? allocate()
             : is_full || kind < 25          ? free()
                                             : launch();
    }
    if (kind < 70) return CompleteStream{any_stream()};
    if (kind < 78) return Maintain{};
    if (kind < 82) return RecordStream{any_block(), any_stream()};
    if (kind < 85) return RecordUse{any_block(), any_stream()};
    if (kind < 88) {
      return Advance{random_.pick(std::array<std::uint64_t, 3>{20'000, 1'000'000, 1'100'000'000})};
    }
    if (kind < 90 || (options_.with_unannounced_streams && kind >= 96)) return on_streams();
    if (kind < 92) return fault();
    if (kind < 94) return bad_free();
    if (kind < 96) return Trim{random_.one_in(2) ? 0 : random_.below(world_.capacity_bytes)};
    if (kind < 98) return DrainCaches{};
    if (kind < 99) return CompleteAll{};
    return TakenByOthers{random_.one_in(2) ? 0 : random_.below(world_.capacity_bytes / 2)};
  }

  Operation bad_free() {
    return BadFree{static_cast<BadFreeKind>(random_.below(4)), any_block(), any_stream(),
                   static_cast<std::uint32_t>(random_.below(1 << 20))};
  }

  struct Live {
    BlockName name = 0;
    std::uint64_t bytes = 0;
  };
  Random random_;
  GeneratorOptions options_;
  WorldOptions world_;
  std::uint64_t size_kind_ = 0;
  std::uint64_t fill_percent_ = 0;
  std::vector<std::uint64_t> usual_sizes_;
  std::vector<Live> live_;
  std::uint64_t live_bytes_ = 0;
  std::deque<Operation> queued_;
  BlockName last_name_ = 0;
  std::uint64_t burst_kind_ = 0;
  std::uint64_t burst_left_ = 0;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

Scenario generate(std::uint64_t seed, const GeneratorOptions& options) {
  return Generator(seed, options).make();
}

std::uint64_t first_seed(std::uint64_t otherwise) {
  return from_environment("GPUPOOL_TEST_SEED", otherwise);
}

std::uint64_t list_count(std::uint64_t otherwise, std::uint64_t soak_factor) {
  const bool soaks = std::getenv("GPUPOOL_SOAK") != nullptr;
  // Sanitizers slow everything down by five to fifteen times, and a list has one thread: what
  // ThreadSanitizer sees in it is the order of locks, which few lists show.
#if defined(__SANITIZE_THREAD__)
  otherwise = otherwise / (soaks ? 8 : 60) + 1;
#elif defined(__SANITIZE_ADDRESS__)
  otherwise = otherwise / 8 + 1;
#endif
  if (soaks) otherwise *= soak_factor;
  return from_environment("GPUPOOL_TEST_LISTS", otherwise);
}

std::uint64_t operation_count(std::uint64_t otherwise) {
  return from_environment("GPUPOOL_TEST_OPERATIONS", otherwise);
}

OperationList shrink(OperationList list, const std::function<bool(const OperationList&)>& fails) {
  for (std::size_t length = std::max<std::size_t>(list.size() / 2, 1); length > 0;) {
    bool has_shrunk = false;
    for (std::size_t at = 0; at < list.size();) {
      OperationList shorter(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(at));
      const std::size_t end = std::min(at + length, list.size());
      shorter.insert(shorter.end(), list.begin() + static_cast<std::ptrdiff_t>(end), list.end());
      if (fails(shorter)) {
        list = std::move(shorter);
        has_shrunk = true;
      } else {
        at += length;
      }
    }
    if (length > 1 || !has_shrunk) length /= 2;
  }
  return list;
}

std::string explain_failure(std::uint64_t seed, const Scenario& scenario) {
  if (from_environment("GPUPOOL_TEST_SHRINK", 1) == 0) return "seed " + std::to_string(seed);
  Scenario smallest = scenario;
  smallest.list = shrink(scenario.list, [&](const OperationList& list) {
    return try_scenario({scenario.world, list}).failure.has_value();
  });
  const auto failure = try_scenario(smallest).failure;
  return "seed " + std::to_string(seed) + ", " + to_text(scenario.world) + "\n" +
         failure.value_or("fails only now and then") + "\n" + std::to_string(smallest.list.size()) +
         " of " + std::to_string(scenario.list.size()) + " operations:\n" + to_text(smallest.list);
}

}  // namespace gpupool::test
