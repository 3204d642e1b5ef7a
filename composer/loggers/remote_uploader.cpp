#include "composer/loggers/remote_uploader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/record.h"
#include "composer/core/state.h"
#include "composer/loggers/background_option.h"
#include "composer/loggers/logged_file.h"
#include "composer/net/remote_store.h"
#include "composer/net/upload_queue.h"
#include "composer/util/name_format.h"
#include "composer/util/temporary.h"

namespace composer::loggers {
namespace {

constexpr const char* kRemoteUploader = "RemoteUploader";

std::vector<Option<RemoteUploaderOptions>> remote_uploader_options() {
  using O = RemoteUploaderOptions;
  const auto is_supported = [](const std::string& uri) {
    const auto begins = [&](const char* scheme) { return uri.starts_with(scheme); };
    return uri.empty() || std::ranges::any_of(std::array{"s3://", "http://", "https://", "file:///"}, begins);
  };
  return all_options(option("uri", &O::uri)
                         .example("file:///tmp/composer-uploads")
                         .must("begin with s3://, https://, http:// or file:///", is_supported)
                         .refuses({"", "ftp://host", "s3://b/{", "s3://b/{x}"})
                         .shown([](const std::string& uri) { return net::shown_url(uri); }),
                     option("capacity", &O::capacity).at_least(1), option("attempts", &O::attempts).from_to(1, 100),
                     option("flush_timeout", &O::flush_timeout).from_to(0, 86'400, "seconds"),
                     on_failure_option(&O::on_failure));
}

bool has_contents_of(net::RemoteStore& store, const LogFile& file, const std::stop_token& stop) {
  const util::Temporary there(util::TemporaryKind::FILE, "composer-");
  store.get(file.name, there.path(), stop);
  return same_contents(file.path, there.path());
}

void put(net::RemoteStore& store, const LogFile& file, const std::stop_token& stop) {
  if (!file.overwrite) {
    if (const auto size = store.size(file.name, stop)) {
      if (*size != size_of_file(file.path) || !has_contents_of(store, file, stop))
        reject_other_contents(store.uri_of(file.name));
      return;
    }
  }
  store.put(file.path, file.name, stop);
}

}  // namespace

struct RemoteUploader::Open {
  Open(std::unique_ptr<net::RemoteStore> store, std::size_t capacity)
      : uri(store->uri()), queue(std::move(store), {.owner = kRemoteUploader, .capacity = capacity}) {}
  std::string uri;
  net::UploadQueue queue;
  bool hangs = false;  // whether flush_timeout has passed once, after which uploads are not waited for
};

RemoteUploader::RemoteUploader(RemoteUploaderOptions options)
    : options_(checked(kRemoteUploader, std::move(options), remote_uploader_options())) {
  if (options_.uri.empty()) throw ConfigError(kRemoteUploader, ": uri is required");
  for (const util::NamePart& part : util::parts_of_name(options_.uri, kRemoteUploader))
    if (part.placeholder && !util::is_known(part.name, /*with_time=*/false))
      throw ConfigError(kRemoteUploader, ": uri has an unknown placeholder, ", part.text);
}
RemoteUploader::~RemoteUploader() = default;
RemoteUploader::RemoteUploader(RemoteUploader&&) noexcept = default;

RemoteUploader::Open& RemoteUploader::open(const State& state) {
  if (open_) return *open_;
  net::StoreOptions store;
  store.http.retry.attempts = static_cast<int>(options_.attempts);
  open_ =
      std::make_unique<Open>(net::open_store(util::format_name(options_.uri, state, nullptr, kRemoteUploader), store),
                             static_cast<std::size_t>(options_.capacity));
  return *open_;
}

void RemoteUploader::init(const State& state, Logger&) { open(state); }

void RemoteUploader::log_record(const Record& record, const State& state) {
  const auto* file = record.get<LogFile>();
  if (file == nullptr) return;
  open(state).queue.send(
      {file->name, [file = *file](net::RemoteStore& store, const std::stop_token& stop) { put(store, file, stop); }});
}

void RemoteUploader::flush() {
  if (!open_ || open_->hangs || open_->queue.drain(options_.flush_timeout)) return;
  open_->hangs = true;
  warn(join(kRemoteUploader, ": uploads to ", open_->uri, " are not finished after ", options_.flush_timeout.count(),
            " s"));
}

void RemoteUploader::fit_end(const State&, Logger&) { flush(); }

void RemoteUploader::close(const State&, Logger&) {
  const std::unique_ptr<Open> open = std::move(open_);
  if (!open) return;
  open->queue.end(open->hangs ? Seconds(0) : options_.flush_timeout);
  const auto failures = open->queue.failures();
  if (failures.empty()) return;
  const std::string text = join(kRemoteUploader, ": ", net::text_of(failures, open->uri));
  if (options_.on_failure == LogFailure::FAIL) throw Error(text);
  warn(text);
}

namespace entries {

Entry<Loggers> remote_uploader() {
  return entry<RemoteUploader>("remote_uploader", "Uploads the files that a run logs to S3, an HTTP server or a folder",
                               remote_uploader_options());
}

}  // namespace entries
}  // namespace composer::loggers
