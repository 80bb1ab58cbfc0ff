#include "bench/baselines/free_list.h"

#include <algorithm>
#include <utility>

#include "bench/baselines/growth.h"

namespace gpupool::baselines {
namespace {

// No device has as much, and no rounding of less overflows.
constexpr std::uint64_t kTooManyBytes = std::uint64_t{1} << 62;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

FreeList::~FreeList() { give_back_unused(); }

Result<void*> FreeList::allocate(std::uint64_t bytes, StreamIndex stream) {
  if (bytes == 0) return nullptr;
  if (bytes >= kTooManyBytes) return Error::out_of_memory;
  const std::uint64_t rounded = round_up(bytes, kGranuleBytes);
  List& list = free_[stream];
  List::iterator found = list.lower_bound({rounded, 0, nullptr});
  if (found == list.end()) {
    const Result<List::iterator> added = add_segment(rounded, stream);
    if (!added.ok()) return added.error();
    found = added.value();
  }
  Piece& piece = *found->piece;
  cut(piece, rounded, list, list.extract(found));
  piece.is_free = false;
  live_.insert(piece.address, &piece);
  return to_pointer(piece.address);
}

bool FreeList::deallocate(void* pointer, StreamIndex stream) {
  if (pointer == nullptr) return true;
  Piece* piece = live_.find(to_address(pointer));
  if (piece == nullptr) return false;
  live_.erase(piece->address);
  List& list = free_[stream];
  List::node_type node;  // of a neighbour, used again, so that joining takes nothing from the heap
  if (may_join(piece->after, stream)) {
    node = list.extract({piece->after->bytes, piece->after->address, nullptr});
    absorb_next(*piece);
  }
  if (may_join(piece->before, stream)) {
    piece = piece->before;
    node = list.extract({piece->bytes, piece->address, nullptr});
    absorb_next(*piece);
  }
  piece->is_free = true;
  piece->stream = stream;
  const Entry entry{piece->bytes, piece->address, piece};
  if (node.empty()) {
    list.insert(entry);
  } else {
    node.value() = entry;
    list.insert(std::move(node));
  }
  return true;
}

/// Leaves `bytes` to the piece and puts what is over into the list, in the piece's own node.
void FreeList::cut(Piece& piece, std::uint64_t bytes, List& list, List::node_type node) {
  if (piece.bytes == bytes) return;
  Piece& rest = *new_piece();
  rest.address = piece.address + bytes;
  rest.bytes = piece.bytes - bytes;
  rest.before = &piece;
  rest.after = piece.after;
  if (rest.after != nullptr) rest.after->before = &rest;
  rest.stream = piece.stream;
  rest.is_free = true;
  piece.after = &rest;
  piece.bytes = bytes;
  node.value() = {rest.bytes, rest.address, &rest};
  list.insert(std::move(node));
}

void FreeList::absorb_next(Piece& piece) {
  Piece* const next = piece.after;
  piece.bytes += next->bytes;
  piece.after = next->after;
  if (piece.after != nullptr) piece.after->before = &piece;
  spare_.push_back(next);
}

FreeList::Piece* FreeList::new_piece() {
  if (spare_.empty()) return &pieces_.emplace_back();
  Piece* const piece = spare_.back();
  spare_.pop_back();
  *piece = {};
  return piece;
}

Result<FreeList::List::iterator> FreeList::add_segment(std::uint64_t bytes, StreamIndex stream) {
  const std::uint64_t needed = round_up(bytes, kPageBytes);
  const Result<Segment> segment = grow(backend_, std::max(needed, kSegmentBytes), needed,
                                       [this] { return give_back_unused(); });
  if (!segment.ok()) return segment.error();
  Piece* const piece = new_piece();
  piece->address = segment.value().address;
  piece->bytes = segment.value().bytes;
  piece->stream = stream;
  piece->is_free = true;
  return free_[stream].insert({piece->bytes, piece->address, piece}).first;
}

bool FreeList::give_back_unused() {
  std::vector<Piece*> unused;  // first pieces of segments in which nothing is live
  for (const List& list : free_) {
    for (const Entry& entry : list) {
      const Piece* piece = entry.piece;
      if (piece->before != nullptr) continue;
      while (piece != nullptr && piece->is_free) piece = piece->after;
      if (piece == nullptr) unused.push_back(entry.piece);
    }
  }
  bool has_given = false;
  for (Piece* piece : unused) {
    if (!backend_.deallocate(piece->address).ok()) continue;
    for (; piece != nullptr; piece = piece->after) {
      free_[piece->stream].erase({piece->bytes, piece->address, nullptr});
      spare_.push_back(piece);
    }
    has_given = true;
  }
  return has_given;
}

std::string FreeList::find_fault() const {
  std::uint64_t sum = 0;
  std::string fault;
  const auto check = [&](const Piece& piece) {
    sum += piece.bytes;
    const Piece* const after = piece.after;
    if (after == nullptr) return;
    if (after->before != &piece) fault = "neighbours that do not know each other";
    if (after->address != piece.address + piece.bytes) fault = "a gap between neighbours";
    if (piece.is_free && may_join(after, piece.stream)) fault = "free neighbours not joined";
  };
  for (std::size_t stream = 0; stream < free_.size(); ++stream) {
    for (const Entry& entry : free_[stream]) {
      const Piece& piece = *entry.piece;
      if (entry.bytes != piece.bytes || entry.address != piece.address) fault = "a stale entry";
      if (!piece.is_free || piece.stream != stream) fault = "a piece in a wrong list";
      check(piece);
    }
  }
  live_.visit([&](DeviceAddress address, const Piece& piece) {
    if (piece.is_free || piece.address != address) fault = "a live block that is none";
    check(piece);
  });
  if (sum != backend_.held_bytes()) fault = "pieces do not sum up to what is held";
  return fault;
}

}  // namespace gpupool::baselines
