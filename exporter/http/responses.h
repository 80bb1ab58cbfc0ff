// The answers that whoever serves the page is made of: text, JSON, the page's own files, and the
// headers that every one of them has.
//
// Thread safety: plain functions. Cost: a copy of the body.
#ifndef GPUPOOL_EXPORTER_HTTP_RESPONSES_H_
#define GPUPOOL_EXPORTER_HTTP_RESPONSES_H_

#include <string>
#include <string_view>

#include "exporter/http/http_message.h"
#include "exporter/page/page_assets.h"

namespace gpupool::internal {

/// An answer of the API.
struct Document {
  std::string body;
  std::string packed_body;  // the same in gzip's format, where somebody has made it
  std::string version;      // changes whenever the body does; empty: not known
};

HttpResponse text_response(int status, std::string body);
HttpResponse json_response(std::string body);
HttpResponse json_response(Document document);

/// A file of the page; nullptr where there is none of that path.
const PageAsset* find_asset(std::string_view path);
HttpResponse asset_response(const PageAsset& asset);

/// What a browser may do with the answer, and whether it may keep it.
void add_common_headers(HttpResponse& response);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_RESPONSES_H_
