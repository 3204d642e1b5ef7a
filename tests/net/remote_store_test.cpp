#include "composer/net/remote_store.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_s3.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/text.h"

namespace composer::remote_store_test {

using namespace net;
using test::error_of;
using test::FakeS3;
using test::HttpCall;
using test::HttpReply;
using test::HttpServer;
namespace fs = std::filesystem;
using test::contains;
using test::text_of;
using test::write_text;

namespace {

StoreOptions without_pauses() {
  StoreOptions options;
  options.http.sleep = [](std::chrono::milliseconds, const std::stop_token&) {};
  return options;
}

std::string names(const std::vector<RemoteFile>& files) {
  std::string text;
  for (const RemoteFile& file : files) text += file.name + ":" + std::to_string(file.size) + " ";
  return text;
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

void check_store(RemoteStore& store, const fs::path& local) {
  store.put(write_text(local / "a", "first"), "x/a b+c=\xc3\xa9.txt");
  store.put(write_text(local / "e", ""), "x/empty");
  store.put(write_text(local / "b", "second"), "y");
  CHECK(names(store.list()) == "x/a b+c=\xc3\xa9.txt:5 x/empty:0 y:6 ");
  CHECK(names(store.list("x/")) == "x/a b+c=\xc3\xa9.txt:5 x/empty:0 ");
  CHECK(store.size("y") == 6);
  CHECK_FALSE(store.size("none"));
  store.get("x/a b+c=\xc3\xa9.txt", local / "new" / "copy");
  CHECK(text_of(local / "new" / "copy") == "first");
  CHECK(entries(local / "new") == 1);
  store.put(local / "b", "x/empty");
  store.get("x/empty", local / "new" / "copy");
  CHECK(text_of(local / "new" / "copy") == "second");
  store.remove("y");
  store.remove("y");
  CHECK_FALSE(store.size("y"));
  CHECK_THROWS_AS(store.get("y", local / "new" / "y"), HttpError);
  CHECK(entries(local / "new") == 1);
  CHECK(contains(error_of([&] { store.put(local / "missing", "z"); }), "missing: cannot be read"));
}

}  // namespace

TEST_CASE("A folder of this machine stores, lists, replaces and removes files") {
  const test::Folder folder;
  const auto store = open_store("file://" + (folder / "remote").string() + "/");
  fs::create_directory(folder / "local");
  check_store(*store, folder / "local");
  CHECK(store->uri() == "file://" + (folder / "remote").string());
  CHECK(contains(error_of([&] { store->put(folder / "local/a", "../x"); }), "cannot be the name"));
}

TEST_CASE("A folder of a bucket stores, lists, replaces and removes files") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.set("other", "not below the folder");
  const auto store = open_store("s3://b/some/folder/");
  check_store(*store, folder.path());
  CHECK(store->uri() == "s3://b/some/folder");
  CHECK(server.objects().at("some/folder/x/empty") == "second");
  for (const HttpCall& call : server.calls()) {
    CHECK(call.headers.at("authorization").starts_with("AWS4-HMAC-SHA256 Credential=id/"));
    CHECK(call.headers.at("x-amz-content-sha256").size() == 64);
  }
}

TEST_CASE("A bucket without a folder is listed from its root") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.set("a/b", "1");
  server.set("c", "22");
  CHECK(names(open_store("s3://b")->list()) == "a/b:1 c:2 ");
}

TEST_CASE("A long file goes to S3 in parts, which are removed if one of them fails") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  StoreOptions options = without_pauses();
  options.part_size = 5 << 20;
  const auto store = open_store("s3://b/f", options);
  std::string data((12 << 20) + 7, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761U >> 13);
  write_text(folder / "long", data);
  std::atomic<int> parts = 0;
  server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
    if (contains(call.target, "partNumber=2&") && ++parts == 1) return HttpReply{500};
    return {};
  });
  store->put(folder / "long", "m");
  CHECK(server.objects().at("f/m") == data);
  CHECK(parts == 2);
  CHECK(server.calls().size() == 6);  // beginning, three parts, one of them twice, end
  CHECK(server.open_uploads() == 0);

  server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    if (contains(call.target, "partNumber=3&")) return HttpReply{403, "<Error><Code>AccessDenied</Code></Error>"};
    return {};
  });
  CHECK(contains(error_of([&] { store->put(folder / "long", "n"); }), "403 AccessDenied"));
  CHECK(server.open_uploads() == 0);
  CHECK_FALSE(server.objects().contains("f/n"));

  for (const std::string code : {"InternalError", "SlowDown", "InvalidPart"}) {
    server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
      if (call.method == "POST" && contains(call.target, "uploadId="))
        return HttpReply{200, "<Error><Code>" + code + "</Code><Message>Again</Message></Error>"};
      return {};
    });
    try {
      store->put(folder / "long", "n");
      FAIL("no error");
    } catch (const HttpError& error) {
      CHECK(error.may_pass == (code != "InvalidPart"));
      CHECK(contains(error.what(), code + " Again"));
    }
  }
  CHECK(server.open_uploads() == 0);
}

TEST_CASE("A download that differs from its MD5 is an error and leaves no file") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  const auto store = open_store("s3://b", without_pauses());
  std::vector<std::string> headers{"ETag: \"900150983cd24fb0d6963f7d28e17f72\""};  // of "abc"
  server.intercept([&](const HttpCall&) { return HttpReply{200, "abd", headers}; });
  CHECK(contains(error_of([&] { store->get("x", folder / "x"); }), "was damaged on its way"));
  CHECK(fs::is_empty(folder.path()));
  headers.emplace_back("x-amz-server-side-encryption: aws:kms");  // the ETag is not an MD5 then
  store->get("x", folder / "x");
  CHECK(text_of(folder / "x") == "abd");
}

TEST_CASE("A failed download keeps the file that was there") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  write_text(folder / "x", "before");
  server.intercept([](const HttpCall&) { return HttpReply{200, "half of it", {}, HttpReply::Fault::CUT}; });
  CHECK_THROWS_AS(open_store("s3://b", without_pauses())->get("x", folder / "x"), HttpError);
  CHECK(text_of(folder / "x") == "before");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("Errors of S3 contain its code and no secrets") {
  FakeS3 server;
  auto values = variables_of(server);
  values["AWS_SESSION_TOKEN"] = "secrettoken";
  const test::Variables variables(values);
  server.intercept([](const HttpCall& call) {
    return HttpReply{403, "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature " +
                              call.headers.at("authorization") + " of secrettoken is wrong</Message></Error>"};
  });
  const std::string error = error_of([] { open_store("s3://b/f")->list(); });
  CHECK(contains(error, "403 SignatureDoesNotMatch"));
  CHECK(contains(error, "check the credentials"));
  CHECK_FALSE(contains(error, "secrettoken"));
  CHECK_FALSE(contains(error, "Signature="));
}

TEST_CASE("An HTTP server stores and returns files, and is not listed") {
  const test::Folder folder;
  std::mutex mutex;
  std::map<std::string, std::string> files;
  HttpServer server([&](const HttpCall& call) -> HttpReply {
    const std::lock_guard lock(mutex);
    if (call.method == "PUT") files[call.target] = call.body;
    if (call.method == "DELETE") return {files.erase(call.target) != 0 ? 204 : 404};
    const auto found = files.find(call.target);
    return found == files.end() ? HttpReply{404} : HttpReply{200, found->second};
  });
  const std::string host = server.url().substr(7);
  const auto store = open_store("http://user:secret@" + host + "/up/?sig=hidden");
  store->put(write_text(folder / "a", "text"), "x/a b");
  CHECK(files.at("/up/x/a%20b?sig=hidden") == "text");
  CHECK(server.calls().at(0).headers.at("authorization") == "Basic dXNlcjpzZWNyZXQ=");
  CHECK(store->size("x/a b") == 4);
  store->get("x/a b", folder / "copy");
  CHECK(text_of(folder / "copy") == "text");
  store->remove("x/a b");
  store->remove("x/a b");
  CHECK_FALSE(store->size("x/a b"));
  const std::string error = error_of([&] { store->get("x/a b", folder / "copy"); });
  CHECK(contains(error, "http://" + host + "/up/x/a%20b: status 404"));
  CHECK_FALSE(contains(error, "secret"));
  CHECK_FALSE(contains(error, "hidden"));
  CHECK(contains(error_of([&] { store->list(); }), "do not list files"));
}

TEST_CASE("URIs that are not supported are rejected") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  for (const char* uri : {"gs://bucket/x", "file://relative", "s3://", "s3:///x", "s3://a b/x", "folder"}) {
    CAPTURE(uri);
    CHECK_THROWS_AS(open_store(uri), ConfigError);
  }
  CHECK(is_uri("s3://b/x"));
  CHECK(is_uri("file:///x"));
  CHECK_FALSE(is_uri("/a/b"));
  CHECK_FALSE(is_uri("runs/a://b"));
}

}  // namespace composer::remote_store_test
