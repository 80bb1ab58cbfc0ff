#include "tests/support/operation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/support/world.h"

namespace gpupool::test {
namespace {

AllocationRequest request_of(const Allocate& it) {
  AllocationRequest request;
  request.bytes = it.bytes;
  request.alignment = it.alignment;
  request.tag = Tag(it.tag);
  request.allocation_class = it.allocation_class;
  return request;
}

/// What has changed in `after`, misuses left out.
bool is_same_state(const StatsV1& before, const StatsV1& after) {
  return before.held_bytes == after.held_bytes && before.cached_bytes == after.cached_bytes &&
         before.pending_bytes == after.pending_bytes && before.free_bytes == after.free_bytes &&
         before.waste_bytes == after.waste_bytes && before.live_blocks == after.live_blocks &&
         before.live_requested_bytes == after.live_requested_bytes && before.frees == after.frees &&
         before.runs == after.runs && before.slabs == after.slabs &&
         before.chunks == after.chunks && before.driver_calls == after.driver_calls;
}

}  // namespace

std::uint64_t plain_bytes_of(const Allocate& it) {
  const std::uint64_t rounded = (it.bytes + kDefaultAlignment - 1) & ~(kDefaultAlignment - 1);
  return it.alignment > kDefaultAlignment ? rounded + it.alignment : rounded;
}

void Allocate::apply(World& world) const {
  World::Stream* at = world.find_stream(stream);
  if (at == nullptr || world.find_block(block) != nullptr) return;
  const bool is_plain =
      alignment <= kDefaultAlignment && allocation_class == AllocationClass::normal;
  const Fit fit = is_plain ? world.pool->would_fit(bytes, at->ref) : Fit::no;
  const StatsV1 before = world.pool->stats();
  const std::uint64_t others_before = world.others_let_in;
  const Occupancy::Busy busy = world.busy_streams();
  const bool by_handle = is_raw || !at->is_adopted;
  const auto result = by_handle ? world.pool->allocate(request_of(*this), at->raw)
                                : world.pool->allocate(request_of(*this), at->ref);
  const StatsV1 after = world.pool->stats();
  if (bytes == 0) {
    if (!result.ok() || result.value() != nullptr) world.fail("0 bytes do not give nullptr");
    if (after.requests != before.requests) world.fail("0 bytes are counted");
    return;
  }
  if (after.hits > before.hits && after.driver_calls != before.driver_calls) {
    world.fail("a hit made a driver call");
  }
  // Where others took memory, growth is tried before the device refuses it; what the pool knows of
  // the device may be old.
  const bool is_answered = is_plain && at->is_adopted && !by_handle && !world.has_faults &&
                           world.taken_by_others == 0 && world.others_let_in == others_before;
  if (is_answered && fit == Fit::now &&
      (!result.ok() || after.driver_calls != before.driver_calls)) {
    world.fail("would_fit said 'now', and it was not without the driver");
  }
  if (is_answered && fit == Fit::no && result.ok() && before.cached_bytes == 0 &&
      before.pending_bytes == 0 && before.limit_in_force_bytes == before.limit_bytes) {
    world.fail("would_fit said 'no', and it was served");
  }
  if (!result.ok()) {
    world.model.count_failure();
    if (fit == Fit::by_growth && !world.has_faults && world.taken_by_others == 0) {
      world.fail("would_fit said 'by_growth', and: " + world.pool->last_failure().text());
    }
    if (is_answered && bytes <= before.largest_satisfiable_bytes) {
      world.fail("not served, though no larger than largest_satisfiable_bytes");
    }
    if (world.others_let_in == others_before) world.judge_refusal(*this, busy);
    const FailureReport report = world.pool->last_failure();
    if (!report.happened || report.requested_bytes != bytes || report.error != result.error()) {
      world.fail("last_failure is not of this request");
    }
    return;
  }
  if (bytes > after.limit_bytes) return world.fail("more than the limit is given");
  const auto address = reinterpret_cast<std::uint64_t>(result.value());
  const std::uint8_t counted_tag = tag < 5 ? tag : std::uint8_t{0xff};  // the default names
  if (const auto wrong = world.model.add_block(address, bytes, alignment, at->key, counted_tag)) {
    return world.fail(*wrong);
  }
  World::Block& made = world.blocks[block];
  if (allocation_class == AllocationClass::contiguous) made.plain_bytes = plain_bytes_of(*this);
  world.occupancy.add(address, bytes, made.plain_bytes);
  world.handed_out.push_back(static_cast<char*>(result.value()));
  made.pointer = static_cast<char*>(result.value());
  made.bytes = bytes;
  made.owner = at->key;
  made.pattern = (std::uint64_t{block} + 1) * 0x9e3779b97f4a7c15ULL ^ address;
  world.launch(made, *at, 0, false);
}

void AllocateWhatMustFit::apply(World& world) const {
  if (!world.is_judged()) return;
  const std::uint64_t pages = world.occupancy.room_pages(world.busy_streams());
  if (pages == 0) return;
  ++world.asked_for_all;
  Allocate{.block = block,
           .bytes = std::max<std::uint64_t>(1, pages * Occupancy::kPageBytes / 100 * percent),
           .alignment = alignment,
           .stream = stream}
      .apply(world);
}

void Free::apply(World& world) const {
  World::Stream* at = world.find_stream(stream);
  World::Block* known = world.find_block(block);
  if (at == nullptr || known == nullptr) return;
  const bool by_handle = is_raw || !at->is_adopted;
  bool is_all_ordered = true;
  world.order(*at, known->owner);
  for (const World::Use& use : known->uses) {
    if (use.is_recorded && use.stream != at->key) {
      is_all_ordered = false;
    } else {
      world.order(*at, use.stream);
    }
  }
  // A last look at the bytes, in the order of the stream that frees.
  if (world.options.memory == SimulatedMemory::real && is_all_ordered) {
    world.launch(*known, *at, 0, false);
  }
  const std::uint64_t wrong_bytes = known->bytes + 1;
  const std::uint64_t given = hint == SizeHint::wrong ? wrong_bytes : known->bytes;
  const bool freed = world.retry_if_faulted([&] {
    bool done;
    if (hint == SizeHint::none) {
      done = by_handle ? world.pool->deallocate(known->pointer, at->raw)
                       : world.pool->deallocate(known->pointer, at->ref);
    } else {
      done = by_handle ? world.pool->deallocate(known->pointer, given, at->raw)
                       : world.pool->deallocate(known->pointer, given, at->ref);
    }
    // The driver did not tell whose the handle is: refused, to be tried again.
    if (!done) world.model.count_misuse(Misuse::unknown_stream);
    return done;
  });
  if (!freed) return world.fail("a live block is not taken back");
  if (hint == SizeHint::wrong) world.model.count_misuse(Misuse::wrong_size);
  world.model.remove_block(reinterpret_cast<std::uint64_t>(known->pointer));
  std::vector<StreamKey> users{at->key};
  if (known->bytes <= Occupancy::kMaxSmallBytes) users.push_back(known->owner);
  if (known->waits_for != 0) users.push_back(known->waits_for);
  for (const World::Use& use : known->uses) {
    if (use.is_awaited) users.push_back(use.stream);
  }
  world.occupancy.remove(reinterpret_cast<std::uint64_t>(known->pointer), std::move(users),
                         known->waits_for != 0);
  world.freed.push_back(known->pointer);
  if (world.freed.size() > 64) world.freed.erase(world.freed.begin());
  world.blocks.erase(block);
}

void BadFree::apply(World& world) const {
  World::Stream* at = world.find_stream(stream);
  if (at == nullptr || !at->is_adopted) return;
  const World::Block* near = world.find_block(block);
  void* pointer = nullptr;
  StreamRef ref = at->ref;
  Misuse expected = Misuse::foreign_pointer;
  bool is_exact = true;
  if (kind == BadFreeKind::interior) {
    if (near == nullptr || near->bytes < 2) return;
    pointer = near->pointer + 1 + offset % (near->bytes - 1);
    expected = Misuse::interior_pointer;
  } else if (kind == BadFreeKind::released_stream) {
    if (near == nullptr || !world.released_stream.is_valid()) return;
    pointer = near->pointer;
    ref = world.released_stream;
    expected = Misuse::unknown_stream;
  } else if (kind == BadFreeKind::foreign) {
    pointer = &world;
  } else {
    if (world.freed.empty()) return;
    pointer = world.freed[block % world.freed.size()];
    const auto owner = world.model.find_block(reinterpret_cast<std::uint64_t>(pointer));
    if (owner == reinterpret_cast<std::uint64_t>(pointer)) return;  // somebody's block again
    // Else free, or in what a live block was rounded up by, or gone back to the driver.
    is_exact = owner.has_value();
    expected = Misuse::interior_pointer;
  }
  const StatsV1 before = world.pool->stats();
  if (world.pool->deallocate(pointer, ref)) return world.fail("a bad free is not refused");
  const StatsV1 after = world.pool->stats();
  if (!is_same_state(before, after)) return world.fail("a bad free changes the state");
  for (const Misuse other :
       {Misuse::double_free, Misuse::interior_pointer, Misuse::foreign_pointer}) {
    const auto index = static_cast<std::size_t>(other);
    if (!is_exact && after.misuses[index] != before.misuses[index]) expected = other;
  }
  world.model.count_misuse(expected);
}

void Launch::apply(World& world) const {
  const World::Stream* at = world.find_stream(stream);
  World::Block* on = world.find_block(block);
  if (at == nullptr || on == nullptr) return;
  world.launch(*on, *at, duration_ns, duration_ns == 0);
}

namespace {

void record(World& world, BlockName block, StreamSlot slot, bool at_free) {
  const World::Stream* at = world.find_stream(slot);
  World::Block* on = world.find_block(block);
  if (at == nullptr || on == nullptr || !at->is_adopted) return;
  const bool is_done = at_free ? world.pool->record_stream(on->pointer, at->ref)
                               : world.pool->record_use(on->pointer, at->ref);
  if (!is_done) world.fail("a use is not recorded");
  for (World::Use& use : on->uses) {
    if (use.stream != at->key) continue;
    use.is_recorded = true;
    use.is_awaited = true;
    use.is_at_free = use.is_at_free || at_free;
    return;
  }
  // The pool waits for what the stream was given, whether or not that was on this block.
  on->uses.push_back({at->key, true, at_free, true});
}

}  // namespace

void RecordStream::apply(World& world) const { record(world, block, stream, true); }
void RecordUse::apply(World& world) const { record(world, block, stream, false); }

void CompleteStream::apply(World& world) const {
  const World::Stream* at = world.find_stream(stream);
  if (at != nullptr) world.device.complete(at->raw);
}

void CompleteAll::apply(World& world) const { world.device.complete_all(); }
void Advance::apply(World& world) const { world.device.advance_ns(ns); }
void Maintain::apply(World& world) const { world.pool->maintain(std::chrono::hours(1)); }

void Trim::apply(World& world) const {
  const std::uint64_t before = world.device.held_bytes();
  const Occupancy::Busy busy = world.busy_streams();
  const std::uint64_t others = world.others_let_in;
  const std::uint64_t released = world.pool->trim(target_bytes);
  if (before - world.device.held_bytes() != released) {
    world.fail("trim says that it gave back " + std::to_string(released));
  }
  world.note_flush(busy, others);
}

void DrainCaches::apply(World& world) const {
  const std::uint64_t cached = world.pool->stats().cached_bytes;
  const Occupancy::Busy busy = world.busy_streams();
  if (world.pool->drain_caches() != cached || world.pool->stats().cached_bytes != 0) {
    world.fail("drain_caches leaves something, or says other bytes");
  }
  world.note_flush(busy, world.others_let_in);
}

void FailNext::apply(World& world) const {
  world.faulty.fail_nth(call, n, error);
  world.has_faults = true;
}

void ReleaseStream::apply(World& world) const { world.end_stream(stream); }
void NewStream::apply(World& world) const { world.start_stream(stream, is_adopted); }

void TakenByOthers::apply(World& world) const {
  if (world.device.set_taken_by_others(bytes).ok()) world.taken_by_others = bytes;
}

// The printed form.

namespace {

class Printer {
 public:
  explicit Printer(const char* name) : text_(std::string(name) + "{") {}
  template <class T>
  Printer& field(const char* name, const T& value) {
    text_ += std::string(text_.back() == '{' ? "." : ", .") + name + " = " + value_text(value);
    return *this;
  }
  std::string text() const { return text_ + "}"; }

 private:
  static std::string value_text(bool value) { return value ? "true" : "false"; }
  static std::string value_text(AllocationClass value) {
    return value == AllocationClass::normal ? "AllocationClass::normal"
                                            : "AllocationClass::contiguous";
  }
  static std::string value_text(SizeHint value) {
    static constexpr const char* kNames[] = {"none", "right", "wrong"};
    return std::string("SizeHint::") + kNames[static_cast<std::size_t>(value)];
  }
  static std::string value_text(BadFreeKind value) {
    static constexpr const char* kNames[] = {"freed_before", "interior", "foreign",
                                             "released_stream"};
    return std::string("BadFreeKind::") + kNames[static_cast<std::size_t>(value)];
  }
  static std::string value_text(BackendCall value) {
    return std::string("BackendCall::") + to_string(value);
  }
  static std::string value_text(Error value) { return std::string("Error::") + to_string(value); }
  static std::string value_text(std::uint64_t value) { return std::to_string(value); }

  std::string text_;
};

std::string print(const Allocate& it) {
  return Printer("Allocate")
      .field("block", std::uint64_t{it.block})
      .field("bytes", it.bytes)
      .field("alignment", it.alignment)
      .field("stream", std::uint64_t{it.stream})
      .field("allocation_class", it.allocation_class)
      .field("tag", std::uint64_t{it.tag})
      .field("is_raw", it.is_raw)
      .text();
}
std::string print(const AllocateWhatMustFit& it) {
  return Printer("AllocateWhatMustFit")
      .field("block", std::uint64_t{it.block})
      .field("stream", std::uint64_t{it.stream})
      .field("percent", it.percent)
      .field("alignment", it.alignment)
      .text();
}
std::string print(const Free& it) {
  return Printer("Free")
      .field("block", std::uint64_t{it.block})
      .field("stream", std::uint64_t{it.stream})
      .field("hint", it.hint)
      .field("is_raw", it.is_raw)
      .text();
}
std::string print(const BadFree& it) {
  return Printer("BadFree")
      .field("kind", it.kind)
      .field("block", std::uint64_t{it.block})
      .field("stream", std::uint64_t{it.stream})
      .field("offset", std::uint64_t{it.offset})
      .text();
}
std::string print(const Launch& it) {
  return Printer("Launch")
      .field("block", std::uint64_t{it.block})
      .field("stream", std::uint64_t{it.stream})
      .field("duration_ns", it.duration_ns)
      .text();
}
std::string print_on_block(const char* name, BlockName block, StreamSlot stream) {
  return Printer(name)
      .field("block", std::uint64_t{block})
      .field("stream", std::uint64_t{stream})
      .text();
}
std::string print(const RecordStream& it) {
  return print_on_block("RecordStream", it.block, it.stream);
}
std::string print(const RecordUse& it) { return print_on_block("RecordUse", it.block, it.stream); }
std::string print(const CompleteStream& it) {
  return Printer("CompleteStream").field("stream", std::uint64_t{it.stream}).text();
}
std::string print(const CompleteAll&) { return "CompleteAll{}"; }
std::string print(const Advance& it) { return Printer("Advance").field("ns", it.ns).text(); }
std::string print(const Maintain&) { return "Maintain{}"; }
std::string print(const Trim& it) {
  return Printer("Trim").field("target_bytes", it.target_bytes).text();
}
std::string print(const DrainCaches&) { return "DrainCaches{}"; }
std::string print(const FailNext& it) {
  return Printer("FailNext")
      .field("call", it.call)
      .field("n", it.n)
      .field("error", it.error)
      .text();
}
std::string print(const ReleaseStream& it) {
  return Printer("ReleaseStream").field("stream", std::uint64_t{it.stream}).text();
}
std::string print(const NewStream& it) {
  return Printer("NewStream")
      .field("stream", std::uint64_t{it.stream})
      .field("is_adopted", it.is_adopted)
      .text();
}
std::string print(const TakenByOthers& it) {
  return Printer("TakenByOthers").field("bytes", it.bytes).text();
}

}  // namespace

std::string to_text(const Operation& operation) {
  return std::visit([](const auto& it) { return print(it); }, operation);
}

std::string to_text(const OperationList& list) {
  std::string text;
  for (const Operation& operation : list) text += "    " + to_text(operation) + ",\n";
  return text;
}

}  // namespace gpupool::test
