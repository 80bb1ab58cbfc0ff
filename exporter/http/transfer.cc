#include "exporter/http/transfer.h"

#include <cstdint>
#include <utility>

#include "exporter/http/compression.h"
#include "exporter/http/negotiation.h"

namespace gpupool::internal {
namespace {

constexpr int kOk = 200;

/// Whether the list names the tag, or everything. Weak, as packed and plain are one version.
bool is_named(std::string_view list, std::string_view tag) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(item.size() < list.size() ? item.size() + 1 : list.size());
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item == "*" || item == tag || "W/" + std::string(item) == tag) return true;
  }
  return false;
}

void pack(const HttpRequest& request, HttpResponse& response) {
  if (response.body.size() <= kMinCompressedBytes) return;
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (!is_gzip_accepted(request.accept_encoding)) return;
  if (response.packed_body.empty()) {
    auto packed = gzip(response.body);
    if (!packed) return;
    response.packed_body = *std::move(packed);
  }
  response.body = std::move(response.packed_body);
  response.headers.emplace_back("Content-Encoding", "gzip");
}

}  // namespace

void prepare_transfer(const HttpRequest& request, HttpResponse& response) {
  if (response.status == kOk && !response.version.empty()) {
    const std::string tag = "W/\"" + response.version + "\"";
    response.headers.emplace_back("ETag", tag);
    if (is_named(request.if_none_match, tag)) {
      response.status = kNotModified;
      response.body.clear();
    }
  }
  pack(request, response);
}

std::string content_version(std::string_view body) {
  constexpr std::uint64_t kStart = 14695981039346656037U;  // FNV-1a
  constexpr std::uint64_t kPrime = 1099511628211U;
  std::uint64_t hash = kStart;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return std::to_string(hash);
}

}  // namespace gpupool::internal
