#include "exporter/http/responses.h"

#include <algorithm>
#include <utility>

#include "exporter/http/transfer.h"

namespace gpupool::internal {

HttpResponse text_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse json_response(std::string body) {
  return {
      .status = 200, .content_type = "application/json; charset=utf-8", .body = std::move(body)};
}

HttpResponse json_response(Document document) {
  HttpResponse response = json_response(std::move(document.body));
  response.packed_body = std::move(document.packed_body);
  response.version = std::move(document.version);
  return response;
}

void add_common_headers(HttpResponse& response) {
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  // With a version a browser may keep it, and asks whether it is still that one.
  response.headers.emplace_back("Cache-Control",
                                response.version.empty() ? "no-store" : "no-cache");
}

const PageAsset* find_asset(std::string_view path) {
  const auto assets = page_assets();
  const auto asset = std::ranges::find(assets, path, &PageAsset::path);
  return asset == assets.end() ? nullptr : &*asset;
}

HttpResponse asset_response(const PageAsset& asset) {
  return {.status = 200,
          .content_type = std::string(asset.content_type),
          .body = std::string(asset.body),
          .packed_body = std::string(asset.packed_body),
          .version = content_version(asset.body)};
}

}  // namespace gpupool::internal
