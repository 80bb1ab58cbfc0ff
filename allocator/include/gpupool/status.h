// Errors as values: the closed set of ways in which a gpupool call can fail, and the types that
// carry them.
//
//   Error      one byte, for the paths where an allocation is served;
//   Status     an Error with the text for a person, for set-up calls;
//   Result<T>  a T or an error. The library never throws.
//
// Thread safety: plain values. Cost: Result<void*> is returned in registers.
#ifndef GPUPOOL_STATUS_H_
#define GPUPOOL_STATUS_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace gpupool {

enum class Error : std::uint8_t {
  out_of_memory = 1,  // the device, or what is left of it, cannot serve the request
  limit_exceeded,     // the request alone is larger than the pool's limit
  invalid_argument,   // a size that overflows, an alignment that is no power of two, ...
  backend_failure,    // the driver refused a call for a reason other than memory
  not_supported,      // valid, but not offered by this backend, build or version
};

/// The name of `error` as it appears in logs and metrics, for example "out_of_memory".
const char* to_string(Error error) noexcept;

/// An error with the text that a person needs: what was asked, what is allowed.
struct Status {
  Error code = Error::invalid_argument;
  std::string message;
};

/// A value of type T or the reason why there is none. Like std::expected, which the supported
/// compilers lack. Asking for the side that is not there ends the program.
template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: functions return either side as it is.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return *require(std::get_if<0>(&state_)); }
  const T& value() const& { return *require(std::get_if<0>(&state_)); }
  T&& value() && { return std::move(*require(std::get_if<0>(&state_))); }
  const E& error() const { return *require(std::get_if<1>(&state_)); }

 private:
  template <class P>
  static P require(P side) noexcept {
    if (side == nullptr) std::abort();
    return side;
  }

  std::variant<T, E> state_;
};

/// The form of every allocation: trivially copyable, so that the caller gets it in registers.
template <>
class [[nodiscard]] Result<void*, Error> {
 public:
  Result(void* value) noexcept : value_(value) {}                 // NOLINT
  Result(Error error) noexcept : failed_(true), error_(error) {}  // NOLINT

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  /// The address; nullptr for a request of 0 bytes, and where the request failed.
  void* value() const noexcept { return value_; }
  Error error() const {
    if (!failed_) std::abort();
    return error_;
  }

 private:
  void* value_ = nullptr;
  bool failed_ = false;
  Error error_ = Error::out_of_memory;
};

/// Success, or the reason why not.
template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() noexcept = default;
  Result(E error) : failed_(true), error_(std::move(error)) {}  // NOLINT

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  const E& error() const {
    if (!failed_) std::abort();
    return error_;
  }

 private:
  bool failed_ = false;
  E error_{};
};

}  // namespace gpupool

#endif  // GPUPOOL_STATUS_H_
