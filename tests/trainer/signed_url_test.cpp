// A load_path with a signature, and what a run writes and prints of it.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "composer/algorithms/load_checkpoint.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/remote_uploader.h"
#include "composer/loggers/tensorboard_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::test::signed_url_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSignature = "f00dCafeSignature";
constexpr const char* kPassword = "opensesame";

// Signs GET of each file, as S3 does: another method, and a file that is not there, are forbidden. Errors repeat the
// request's target.
struct Signing {
  Signing()
      : server([this](const HttpCall& call) -> HttpReply {
          const std::lock_guard lock(mutex);
          const std::size_t query = std::min(call.target.find('?'), call.target.size());
          const auto file = files.find(call.target.substr(0, query));
          const bool is_signed = contains(call.target, std::string("&X-Signature=") + kSignature);
          if (call.method == "PUT" && is_signed && !refuses) return HttpReply{200};
          if (call.method == "GET" && is_signed && file != files.end() && !refuses) return HttpReply{200, file->second};
          return HttpReply{403, "<Error><Code>AccessDenied</Code><Message>" + call.method + " " + call.target + " by " +
                                    kSignature + " and " + kPassword + " is denied</Message></Error>"};
        }) {}
  std::string url(const std::string& path) const {
    return "http://user:" + std::string(kPassword) + "@" + server.url().substr(7) + path +
           "?X-Expires=600&X-Signature=" + kSignature;
  }
  std::mutex mutex;
  std::map<std::string, std::string> files;
  bool refuses = false;
  HttpServer server;
};

// Warnings of all threads.
struct Printed {
  Printed()
      : before(redirect_warnings([this](const std::string& text) {
          const std::lock_guard lock(mutex);
          all += text + "\n";
        })) {}
  ~Printed() { redirect_warnings(before); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  std::mutex mutex;
  std::string all;
  WarningSink before;
};

void check_no_secret(const std::string& text) {
  CHECK_FALSE_MESSAGE(contains(text, kSignature), text);
  CHECK_FALSE_MESSAGE(contains(text, kPassword), text);
}

TrainerOptions options_in(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.save_folder = (folder / "run/checkpoints").string();
  options.load_weights_only = true;
  options.loggers = {loggers::JsonLinesLogger({.path = folder / "run/log.jsonl"}),
                     loggers::CsvLogger({.path = folder / "run/log.csv"}),
                     loggers::TensorBoardLogger({.folder = folder / "run/tensorboard"})};
  return options;
}

}  // namespace

TEST_CASE("A file is loaded from a signed URL, and nothing that the run writes or prints has the signature") {
  const Folder folder;
  Signing signing;
  const auto model = tiny_model();
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : model->parameters()) weight.fill_(0.375);
  }
  save_weights(*model, (folder / "w.safetensors").string());
  signing.files["/bucket/my%20weights+1.safetensors"] = "?";
  signing.files["/bucket/my%20weights%2B1.safetensors"] = text_of(folder / "w.safetensors");
  const std::string url = signing.url("/bucket/my%20weights%2B1.safetensors");
  Printed printed;
  std::string from;
  {
    TrainerOptions options = options_in(folder);
    options.load_path = url;
    options.loggers.add(loggers::RemoteUploader({.uri = signing.url("/uploads")}));
    options.seed = 3;
    Trainer trainer(std::move(options));
    CHECK(weights_of(trainer).eq(0.375).all().item<bool>());
    from = trainer.resumed_from();
    trainer.fit();
  }
  check_no_secret(from);
  CHECK(contains(from, "/bucket/my%20weights%2B1.safetensors"));
  {
    TrainerOptions options = options_in(folder);
    options.save_folder = (folder / "run/other").string();
    options.loggers = {};
    options.algorithms = {algorithms::LoadCheckpoint({.load_path = url, .load_weights_only = true})};
    Trainer(std::move(options)).fit();
  }
  check_no_secret(printed.all);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "run")) {
    check_no_secret(entry.path().string());
    if (!entry.is_regular_file()) continue;
    ++files;
    CAPTURE(entry.path());
    CHECK_FALSE(contains(text_of(entry.path()), kSignature));
    CHECK_FALSE(contains(text_of(entry.path()), kPassword));
  }
  CHECK(files > 6);
}

TEST_CASE("Errors of a signed URL contain neither its signature nor a password, whatever the server repeats") {
  const Folder folder;
  Signing signing;
  signing.files["/bucket/text.safetensors"] = "no weights";
  const auto error = [&](const std::string& path, bool weights_only = true) {
    TrainerOptions options = options_in(folder);
    options.load_path = signing.url(path);
    options.load_weights_only = weights_only;
    options.loggers = {};
    return error_of([&] { Trainer trainer(options); });
  };
  Printed printed;
  for (const char* path : {"/bucket/none.safetensors", "/bucket/text.safetensors", "/bucket/", "", "/bucket/..",
                           "/bucket/{nothing}.pt", "/bucket/{run_name", "/bucket/a b"}) {
    CAPTURE(path);
    const std::string text = error(path);
    CHECK(text != "no error");
    check_no_secret(text);
  }
  CHECK(contains(error("/bucket/none.safetensors"), "/bucket/none.safetensors: status 403 AccessDenied"));
  signing.refuses = true;
  {
    TrainerOptions options = options_in(folder);
    options.loggers = {loggers::RemoteUploader({.uri = signing.url("/uploads")})};
    options.callbacks.add(At([&](Event, const State&) {}));
    Trainer trainer(std::move(options));
    std::ofstream(folder / "plot.svg") << "<svg/>";
    trainer.logger().upload_file({.path = folder / "plot.svg", .name = "plot.svg"});
    check_no_secret(error_of([&] { trainer.fit(); }));
  }
  CHECK(contains(printed.all, "plot.svg"));
  check_no_secret(printed.all);
}

TEST_CASE("A checkpoint is loaded from a folder whose signature holds for all of its files") {
  const Folder folder;
  Signing signing;
  TrainerOptions saving = options_in(folder);
  saving.load_weights_only = false;
  saving.loggers = {};
  Trainer trained(std::move(saving));
  trained.fit();
  for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints/ep1-ba4"))
    signing.files["/runs/ck/" + entry.path().filename().string()] = text_of(entry.path());
  TrainerOptions options = tiny_options();
  options.load_path = signing.url("/runs/ck");
  options.max_duration = "2ep";
  Printed printed;
  Trainer trainer(std::move(options));
  CHECK(trainer.state().timestamp.batch == 4);
  CHECK(at::equal(weights_of(trainer), weights_of(trained)));
}

}  // namespace composer::test::signed_url_test
