// Units in a row that one request may take: free runs that its stream may use, and unbacked pages
// between them. Some of its pages are charged, others come for free; a window is a place in it that
// is as long as the request, and costs the charged pages that it touches.
//
// Thread safety: none. Cost: add() O(1); best_window() O(n log n) for n pieces.
#ifndef GPUPOOL_POOL_STRETCH_H_
#define GPUPOOL_POOL_STRETCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpupool::internal {

class Stretch {
 public:
  enum class Charge : std::uint8_t {
    nothing,
    by_page,
    whole,  // all of it, whichever part is touched
  };
  /// Units of one kind. Pieces that are charged begin and end at pages.
  struct Piece {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    bool is_backed = false;
    Charge charge = Charge::nothing;
    std::uint64_t before = 0;  // charged pages of the pieces before it
  };
  struct Window {
    std::uint64_t start = 0;
    std::uint64_t cost = ~std::uint64_t{0};
  };

  void clear() noexcept { pieces_.clear(); }
  bool is_empty() const noexcept { return pieces_.empty(); }
  /// Begins where the last one ended.
  void add(std::uint64_t start, std::uint64_t end, bool is_backed, Charge charge);
  std::uint64_t start() const noexcept { return pieces_.front().start; }
  std::uint64_t end() const noexcept { return pieces_.back().end; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  /// The cheapest, of equals the lowest. Requires: the stretch is as long as `units`.
  /// Of the highest cost where the alignment leaves no place.
  Window best_window(std::uint32_t units, std::uint32_t align_units) const;
  /// The longest window that costs no more than `pages`.
  std::uint64_t longest_window(std::uint64_t pages) const;

 private:
  /// The charged pages of the piece in [start, end).
  static std::uint64_t charged(const Piece& piece, std::uint64_t start, std::uint64_t end) noexcept;
  static std::uint64_t charged(const Piece& piece) noexcept {
    return charged(piece, piece.start, piece.end);
  }
  std::size_t piece_at(std::uint64_t unit) const noexcept;
  std::uint64_t cost(std::uint64_t start, std::uint64_t end) const noexcept;

  std::vector<Piece> pieces_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_STRETCH_H_
