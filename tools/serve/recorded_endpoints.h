// What `--serve` answers: the page, and the part of the exporter's API that the page asks for, of
// something recorded. Exact paths, GET and HEAD only, nothing that changes anything; there is no
// /metrics, as nothing of this is a process that Prometheus could follow.
//
//   /  /page.css ...       the page for people
//   /-/healthy             200 while it serves
//   /api/v1/pools          {"pools": [...], "recording": "replay" or "snapshot"}, by which the page
//                          knows what it shows
//   /api/v1/recording      what was recorded, and where to look in it
//   /api/v1/history        the numbers of the whole job
//   /api/v1/stats  /api/v1/snapshot  /api/v1/would_fit  /api/v1/events  /api/v1/last_failure
//                          as the exporter's, at the place `at`; times count from the start
//
// Thread safety: any thread. Cost: that of the sources.
#ifndef GPUPOOL_TOOLS_SERVE_RECORDED_ENDPOINTS_H_
#define GPUPOOL_TOOLS_SERVE_RECORDED_ENDPOINTS_H_

#include <functional>
#include <string>

#include "exporter/http/access.h"
#include "exporter/http/http_message.h"
#include "exporter/http/query.h"
#include "exporter/http/responses.h"
#include "gpupool/status.h"

namespace gpupool::tools {

/// The error is what is wrong with the query. One that is not there is a 404.
using RecordedSource =
    std::function<Result<internal::Document, std::string>(const internal::Query&)>;

struct RecordedSources {
  std::string kind;  // "replay", "snapshot"
  std::string pool;
  int device = 0;
  bool has_places = false;  // whether `at` is known
  RecordedSource recording;
  RecordedSource stats;
  RecordedSource snapshot;
  RecordedSource would_fit;
  RecordedSource history;
  RecordedSource events;
  RecordedSource last_failure;
};

class RecordedEndpoints {
 public:
  RecordedEndpoints(RecordedSources sources, internal::Access access)
      : sources_(std::move(sources)), access_(std::move(access)) {}

  internal::HttpResponse handle(const internal::HttpRequest& request) const;

 private:
  struct Route;

  internal::HttpResponse route(const internal::HttpRequest& request) const;
  internal::HttpResponse answer(const Route& route, const internal::HttpRequest& request) const;
  std::string pools_json() const;

  const RecordedSources sources_;
  const internal::Access access_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_RECORDED_ENDPOINTS_H_
