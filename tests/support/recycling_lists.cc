#include "tests/support/recycling_lists.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

class RecyclingGenerator {
 public:
  RecyclingGenerator(std::uint64_t seed, const RecyclingListOptions& options)
      : random_(seed * 0x2545f4914f6cdd1dULL + 3), options_(options) {
    world_.memory = options.memory;
    world_.recycling = options.recycling;
    world_.alias_reuse = options.alias_reuse;
    world_.owes_empty_pages = options.recycling != Recycling::off;
    world_.slack = random_.pick(std::array{0.0, 0.005, 0.05, 0.5});
    world_.capacity_bytes = random_.between(8, 64) * kPage;
    if (random_.one_in(4)) world_.reserve_bytes = random_.between(1, 4) * kPage;
    world_.stream_count = static_cast<StreamSlot>(random_.between(1, 4));
    world_.cache_small_bytes = random_.pick(std::array{std::uint64_t{0}, 64 * kKiB, 4 * kMiB});
    world_.cache_large_bytes = random_.pick(std::array{std::uint64_t{0}, 4 * kMiB, 32 * kMiB});
    // Some lists leave much of the card alone at first: how much is held is of interest there.
    const std::uint64_t percent = random_.pick(std::array<std::uint64_t, 4>{40, 70, 100, 100});
    ceiling_bytes_ = world_.capacity_bytes / 100 * percent;
    asks_from_ = percent < 100 ? options.operations / 2 : 0;
  }

  Scenario make() {
    while (list_.size() < options_.operations) add_phase();
    list_.resize(options_.operations);
    return {world_, std::move(list_)};
  }

 private:
  struct Live {
    BlockName name = 0;
    std::uint64_t bytes = 0;
    StreamSlot stream = 0;
  };

  StreamSlot any_stream() { return static_cast<StreamSlot>(random_.below(world_.stream_count)); }

  /// As many of small and large ones.
  std::uint64_t any_size() {
    const std::uint64_t low = std::uint64_t{512} << random_.below(18);
    return std::min(random_.between(low, 2 * low), ceiling_bytes_ / 2);
  }
  std::uint64_t about_pages(std::uint64_t pages) {
    switch (random_.below(3)) {
      case 0: return pages * kPage;
      case 1: return pages * kPage - random_.below(64 * kKiB);
      default: return pages * kPage + random_.below(kPage / 2);
    }
  }

  void allocate(std::uint64_t bytes, StreamSlot stream) {
    Allocate it{.block = ++last_name_, .bytes = bytes, .stream = stream};
    if (random_.one_in(12)) it.alignment = std::uint64_t{1} << random_.between(9, 21);
    if (random_.one_in(60)) it.allocation_class = AllocationClass::contiguous;
    list_.push_back(it);
    live_.push_back({last_name_, bytes, stream});
    live_bytes_ += bytes;
  }

  void ask_for_room() {
    if (list_.size() < asks_from_) return allocate(any_size(), any_stream());
    const std::uint64_t percent = random_.pick(std::array<std::uint64_t, 4>{100, 100, 75, 50});
    const std::uint64_t alignment = random_.one_in(4) ? kMaxAlignment : kDefaultAlignment;
    list_.push_back(AllocateWhatMustFit{++last_name_, any_stream(), percent, alignment});
    // What it was is known to the world alone; mostly it goes at once, so that others have room.
    if (random_.one_in(6)) {
      live_.push_back({last_name_, kPage, any_stream()});
      live_bytes_ += kPage;
    } else {
      list_.push_back(Free{last_name_, any_stream()});
    }
  }

  void free_at(std::size_t at) {
    const Live live = live_[at];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    live_bytes_ -= live.bytes;
    if (random_.one_in(8)) use(live.name);
    const StreamSlot stream = random_.one_in(4) ? any_stream() : live.stream;
    list_.push_back(Free{live.name, stream});
  }

  void use(BlockName name) { use(name, any_stream()); }
  void use(BlockName name, StreamSlot user) {
    const std::uint64_t duration = random_.one_in(3) ? random_.between(1, 500'000) : 0;
    list_.push_back(Launch{name, user, duration});
    if (random_.one_in(3)) list_.push_back(RecordStream{name, user});
    if (random_.one_in(6)) list_.push_back(RecordUse{name, user});
  }

  void tend() {
    constexpr std::array<std::uint64_t, 3> kSteps{20'000, 200'000, 2'100'000'000};
    switch (random_.below(11)) {
      case 0: return list_.push_back(Maintain{});
      case 1: return list_.push_back(DrainCaches{});
      case 2: return list_.push_back(Trim{random_.one_in(2) ? 0 : random_.below(128) * kMiB});
      case 3: return list_.push_back(CompleteAll{});
      case 4: return list_.push_back(Advance{random_.pick(kSteps)});
      case 5:
      case 6: return ask_for_room();
      default: return list_.push_back(CompleteStream{any_stream()});
    }
  }

  void free_percent(std::uint64_t percent) {
    for (std::size_t at = live_.size(); at-- > 0;) {
      if (random_.below(100) < percent) free_at(at);
    }
  }

  void spread() {
    const std::uint64_t pages = random_.one_in(2) ? 1 : random_.between(1, 4);
    const StreamSlot stream = any_stream();
    const std::size_t first = live_.size();
    for (std::uint64_t sum = live_bytes_; sum < ceiling_bytes_; sum += pages * kPage) {
      allocate(random_.one_in(3) ? about_pages(pages) : pages * kPage, stream);
    }
    if (random_.one_in(3)) tend();
    const std::uint64_t step = random_.between(2, 9);
    std::size_t kept = 0;
    while (first + kept < live_.size()) {
      for (std::uint64_t i = 1; i < step && first + kept < live_.size(); ++i) free_at(first + kept);
      ++kept;
    }
    if (random_.one_in(2)) list_.push_back(CompleteAll{});
    ask_for_room();
  }

  void pin() {
    const StreamSlot stream = any_stream();
    std::vector<BlockName> large;
    while (live_bytes_ < ceiling_bytes_) {
      allocate(about_pages(random_.between(1, 3)), stream);
      large.push_back(last_name_);
      for (std::uint64_t i = random_.below(3); i > 0; --i) {
        allocate(random_.between(1, 200 * kKiB), any_stream());
      }
    }
    for (std::size_t at = live_.size(); at-- > 0;) {
      if (std::find(large.begin(), large.end(), live_[at].name) != large.end()) free_at(at);
    }
    if (random_.one_in(2)) list_.push_back(CompleteAll{});
    ask_for_room();
  }

  void churn() {
    for (std::uint64_t i = random_.between(20, 150); i > 0; --i) {
      const bool is_full = live_bytes_ > ceiling_bytes_;
      if (random_.one_in(8)) {
        tend();
      } else if (live_.empty() || random_.one_in(is_full ? 6 : 2)) {
        allocate(random_.one_in(10) ? about_pages(random_.between(1, 16)) : any_size(),
                 any_stream());
      } else if (random_.one_in(4)) {
        use(live_[random_.below(live_.size())].name);
      } else {
        free_at(random_.below(live_.size()));
      }
    }
  }

  void race() {
    const StreamSlot stream = any_stream();
    for (std::uint64_t sum = live_bytes_; sum < ceiling_bytes_;) {
      allocate(about_pages(random_.between(1, 6)), stream);
      sum += live_.back().bytes;
      if (random_.one_in(2)) use(last_name_, random_.one_in(2) ? stream : any_stream());
    }
    free_percent(random_.between(30, 90));
    for (std::uint64_t i = random_.between(2, 6); i > 0; --i) {
      // Part of a page that has just moved is left for somebody else.
      if (random_.one_in(2)) allocate(about_pages(random_.between(1, 8)), stream);
      if (random_.one_in(2)) allocate(random_.between(100, 900) * kKiB, any_stream());
      ask_for_room();
      list_.push_back(CompleteStream{any_stream()});
      if (random_.one_in(3)) tend();
    }
  }

  void add_phase() {
    switch (random_.below(6)) {
      case 0: spread(); break;
      case 1: pin(); break;
      case 2: race(); break;
      default: churn(); break;
    }
    if (live_bytes_ > ceiling_bytes_ || random_.one_in(2)) {
      free_percent(random_.one_in(3) ? 100 : random_.between(20, 90));
    }
    tend();
  }

  Random random_;
  RecyclingListOptions options_;
  WorldOptions world_;
  OperationList list_;
  std::vector<Live> live_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t ceiling_bytes_ = 0;  // of live bytes, about
  std::uint64_t asks_from_ = 0;      // in the list
  BlockName last_name_ = 0;
};

}  // namespace

Scenario generate_recycling(std::uint64_t seed, const RecyclingListOptions& options) {
  return RecyclingGenerator(seed, options).make();
}

}  // namespace gpupool::test
