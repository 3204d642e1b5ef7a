#include "composer/net/http.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/text.h"

namespace composer::http_test {

using namespace net;
using std::chrono::milliseconds;
using test::error_of;
using test::HttpCall;
using test::HttpReply;
using test::HttpServer;
using Fault = HttpReply::Fault;
using test::contains;
using test::text_of;

namespace {

// Options whose pauses are recorded and not waited for.
struct Pauses {
  HttpOptions options(int attempts = 5) {
    HttpOptions chosen;
    chosen.retry.attempts = attempts;
    chosen.sleep = [this](milliseconds pause, const std::stop_token&) { list.push_back(pause.count()); };
    return chosen;
  }
  std::vector<long> list;
};

HttpResponse get(const std::string& url, HttpOptions options) {
  return HttpClient(std::move(options)).send({"GET", url});
}

}  // namespace

TEST_CASE("A request reaches the server as it was written, and its response the caller") {
  HttpServer server([](const HttpCall&) { return HttpReply{201, "made", {"X-Mark:  Some Value "}}; });
  const HttpResponse response =
      HttpClient().send({"POST", server.url() + "/a%20b?c=d", {{"X-One", "1"}, {"X-Empty", ""}}, std::string("hello")});
  CHECK(response.status == 201);
  CHECK(response.body == "made");
  CHECK(response.header("x-mark") == "Some Value");
  const HttpCall call = server.calls().at(0);
  CHECK(call.method == "POST");
  CHECK(call.target == "/a%20b?c=d");
  CHECK(call.body == "hello");
  CHECK(call.headers.at("x-one") == "1");
  CHECK(call.headers.at("x-empty").empty());
  CHECK(call.headers.contains("content-type") == false);
  CHECK(call.headers.contains("expect") == false);
}

TEST_CASE("Every method sends the body that it has") {
  HttpServer server([](const HttpCall&) { return HttpReply{}; });
  HttpClient client;
  for (const char* method : {"GET", "HEAD", "DELETE", "PUT", "POST", "PATCH"}) {
    CAPTURE(method);
    HttpRequest request{method, server.url()};
    if (std::string(method) == "PATCH") request.body = std::string("part");
    client.send(request);
    const HttpCall call = server.calls().back();
    CHECK(call.method == method);
    CHECK(call.body == (std::string(method) == "PATCH" ? "part" : ""));
    if (std::string(method) == "PUT") CHECK(call.headers.at("content-length") == "0");
  }
}

TEST_CASE("A part of a file is sent again from its beginning after a failure") {
  const test::Folder folder;
  std::ofstream(folder / "data", std::ios::binary) << "0123456789";
  std::atomic<int> count = 0;
  HttpServer server([&](const HttpCall&) { return HttpReply{++count == 1 ? 503 : 200}; });
  Pauses pauses;
  HttpClient(pauses.options()).send({"PUT", server.url(), {}, FilePart{folder / "data", 3, 4}});
  REQUIRE(server.calls().size() == 2);
  CHECK(server.calls()[0].body == "3456");
  CHECK(server.calls()[1].body == "3456");
}

TEST_CASE("A body of a megabyte arrives whole, from memory and from a file") {
  const test::Folder folder;
  std::string data(1 << 20, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761U >> 13);
  std::ofstream(folder / "data", std::ios::binary) << data;
  HttpServer server([](const HttpCall& call) { return HttpReply{200, call.body}; });
  HttpClient client;
  CHECK(client.send({"PUT", server.url(), {}, data}).body == data);
  HttpRequest request{"PUT", server.url(), {}, FilePart{folder / "data"}, folder / "copy"};
  CHECK(client.send(request).body.empty());
  CHECK(text_of(folder / "copy") == data);
}

TEST_CASE("Failures that may pass are tried again with growing pauses, and others are not") {
  struct Row {
    HttpReply reply;
    std::size_t calls;
  };
  const std::vector<Row> rows{{{408}, 4},
                              {{429}, 4},
                              {{500}, 4},
                              {{503}, 4},
                              {{400}, 1},
                              {{401}, 1},
                              {{403}, 1},
                              {{404}, 1},
                              {{409}, 1},
                              {{300}, 1},
                              {{302}, 1},
                              {{200, "", {}, Fault::CLOSE}, 4},
                              {{200, "body", {}, Fault::CUT}, 4},
                              {{200, "", {}, Fault::GARBAGE}, 1}};
  for (const Row& row : rows) {
    CAPTURE(row.reply.status);
    CAPTURE(static_cast<int>(row.reply.fault));
    HttpServer server([&](const HttpCall&) { return row.reply; });
    Pauses pauses;
    try {
      get(server.url() + "/x", pauses.options(4));
      FAIL("no error");
    } catch (const HttpError& error) {
      CHECK(error.may_pass == (row.calls > 1));
      CHECK(error.status == (row.reply.fault == Fault::NONE ? row.reply.status : 0));
    }
    CHECK(server.calls().size() == row.calls);
    REQUIRE(pauses.list.size() == row.calls - 1);
    long upper = 500;
    for (const long pause : pauses.list) {
      CHECK(pause >= upper / 2);
      CHECK(pause <= upper);
      upper *= 2;
    }
  }
}

TEST_CASE("A request succeeds once the server has recovered") {
  std::atomic<int> count = 0;
  HttpServer server([&](const HttpCall&) { return ++count < 4 ? HttpReply{500, "no"} : HttpReply{200, "yes"}; });
  Pauses pauses;
  CHECK(get(server.url(), pauses.options(5)).body == "yes");
  CHECK(pauses.list.size() == 3);
}

TEST_CASE("A request that must not arrive twice is sent once") {
  HttpServer server([](const HttpCall&) { return HttpReply{500}; });
  Pauses pauses;
  HttpRequest request{"POST", server.url()};
  request.repeat = false;
  CHECK_THROWS_AS(HttpClient(pauses.options()).send(request), HttpError);
  CHECK(server.calls().size() == 1);
}

TEST_CASE("Headers that depend on the time are made for each attempt") {
  HttpServer server([](const HttpCall&) { return HttpReply{500}; });
  Pauses pauses;
  HttpRequest request{"GET", server.url()};
  int made = 0;
  request.more_headers = [&] { return std::vector<HttpHeader>{{"X-Made", std::to_string(++made)}}; };
  CHECK_THROWS_AS(HttpClient(pauses.options(2)).send(request), HttpError);
  CHECK(server.calls().at(0).headers.at("x-made") == "1");
  CHECK(server.calls().at(1).headers.at("x-made") == "2");
}

TEST_CASE("The pause is that of Retry-After up to the limit") {
  struct Row {
    const char* value;
    long pause;
  };
  for (const Row& row : {Row{"7", 7000}, Row{"100000", 300'000}, Row{"Fri, 31 Dec 2100 23:59:59 GMT", 300'000},
                         Row{"Fri, 31 Dec 1999 23:59:59 GMT", 0}, Row{"soon", 0}, Row{"-5", 0}}) {
    CAPTURE(row.value);
    HttpServer server([&](const HttpCall&) { return HttpReply{429, "", {std::string("Retry-After: ") + row.value}}; });
    Pauses pauses;
    CHECK_THROWS_AS(get(server.url(), pauses.options(2)), HttpError);
    REQUIRE(pauses.list.size() == 1);
    if (row.pause > 0)
      CHECK(pauses.list[0] == row.pause);
    else
      CHECK(pauses.list[0] <= 500);
  }
}

TEST_CASE("A Retry-After that is a date is counted from the server's own clock") {
  HttpServer server([](const HttpCall&) {
    return HttpReply{429, "", {"Date: Mon, 06 Dec 1999 23:59:50 GMT", "Retry-After: Mon, 06 Dec 1999 23:59:59 GMT"}};
  });
  Pauses pauses;
  CHECK_THROWS_AS(get(server.url(), pauses.options(2)), HttpError);
  REQUIRE(pauses.list.size() == 1);
  CHECK(pauses.list[0] == 9000);
}

TEST_CASE("A refused connection says where, why and what to do") {
  Pauses pauses;
  const std::string url = test::refusing_url();
  const std::string error = error_of([&] { get(url + "/x?token=secret", pauses.options(3)); });
  CHECK(contains(error, "GET " + url + "/x: "));
  CHECK(contains(error, "check that the server runs"));
  CHECK(contains(error, "(after 3 attempts)"));
  CHECK_FALSE(contains(error, "secret"));
  CHECK(pauses.list.size() == 2);
}

TEST_CASE("An error repeats what the server said, on one line and without secrets") {
  struct Row {
    const char* body;
    const char* said;
    const char* code;
  };
  const std::vector<Row> rows{
      {"<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>It is &lt;gone&gt;</Message></Error>",
       "NoSuchKey: It is <gone>", "NoSuchKey"},
      {R"({"error_code": "BAD", "message": "not a\nrun"})", "BAD: not a run", "BAD"},
      {R"({"errors": [{"message": "permission denied"}]})", "permission denied", ""},
      {R"({"error": {"code": "X", "message": "nested"}})", "X: nested", "X"},
      {"plain words\n", "plain words", ""},
      {"your key abcdefgh is wrong", "your key *** is wrong", ""},
      {"<html><title>Oops</title></html>", "status 403", ""},
      {"{broken", "status 403", ""},
      {"", "status 403", ""}};
  for (const Row& row : rows) {
    CAPTURE(row.body);
    HttpServer server([&](const HttpCall&) { return HttpReply{403, row.body}; });
    HttpRequest request{"GET", server.url(), {{"Authorization", "Bearer abcdefgh"}}};
    try {
      HttpClient().send(request);
      FAIL("no error");
    } catch (const HttpError& error) {
      CHECK(contains(error.what(), row.said));
      CHECK(contains(error.what(), "check the credentials"));
      CHECK_FALSE(contains(error.what(), "abcdefgh"));
      CHECK(error.code == row.code);
    }
  }
}

TEST_CASE("An error does not repeat the user and the password of a URL as they are sent") {
  HttpServer server([&](const HttpCall& call) { return HttpReply{403, "not " + call.headers.at("authorization")}; });
  std::string url = server.url();
  url.insert(url.find("://") + 3, "us%65r:pass%21word@");
  const std::string error = error_of([&] { get(url, {}); });
  CHECK(contains(error, "not Basic ***"));
  CHECK_FALSE(contains(error, "dXNlcjpwYXNzIXdvcmQ="));
}

TEST_CASE("A long message of the server is cut") {
  HttpServer server([](const HttpCall&) { return HttpReply{400, std::string(1 << 20, 'x')}; });
  CHECK(error_of([&] { get(server.url(), {}); }).size() < 500);
}

TEST_CASE("A server that does not answer fails after the total limit") {
  for (const Fault fault : {Fault::HANG, Fault::HANG_HALF}) {
    HttpServer server([&](const HttpCall&) { return HttpReply{200, "body", {}, fault}; });
    Pauses pauses;
    HttpOptions options = pauses.options(2);
    options.total_limit = milliseconds(50);
    CHECK(contains(error_of([&] { get(server.url(), options); }), "timed out"));
    CHECK(pauses.list.size() == 1);
  }
}

TEST_CASE("A slow response is read to its end") {
  HttpServer server([](const HttpCall&) { return HttpReply{200, std::string(500, 'x'), {}, Fault::SLOW}; });
  CHECK(get(server.url(), {}).body == std::string(500, 'x'));
}

TEST_CASE("A response that drips fails after the stall limit, whether it goes to memory or to a file") {
  const test::Folder folder;
  HttpServer server([](const HttpCall&) { return HttpReply{200, "", {}, Fault::DRIP}; });
  Pauses pauses;
  HttpOptions options = pauses.options(1);
  options.stall_limit = milliseconds(1000);
  options.total_limit = milliseconds(10'000);  // if it does not
  HttpRequest request{"GET", server.url()};
  SUBCASE("to memory") {}
  SUBCASE("to a file") { request.to_file = folder / "file"; }
  const std::string error = error_of([&] { HttpClient(options).send(request); });
  CHECK(contains(error, "too slow"));
}

TEST_CASE("A request that waits for the server is cancelled from another thread") {
  for (const Fault fault : {Fault::HANG, Fault::HANG_HALF}) {
    HttpServer server([&](const HttpCall&) { return HttpReply{200, "body", {}, fault}; });
    std::stop_source stop;
    server.on_hang = [&] { stop.request_stop(); };
    const std::string error = error_of([&] { HttpClient().send({"GET", server.url()}, stop.get_token()); });
    CHECK(error == "GET " + server.url() + ": was cancelled");
  }
}

TEST_CASE("A pause between two attempts is cancelled from another thread") {
  std::stop_source stop;
  HttpServer server([&](const HttpCall&) { return HttpReply{503, "", {"Retry-After: 200"}}; });
  HttpOptions options;  // it really waits
  options.retry.attempts = 2;
  std::jthread other([&] {
    while (server.calls().empty()) std::this_thread::yield();
    stop.request_stop();
  });
  CHECK_THROWS_AS(HttpClient(options).send({"GET", server.url()}, stop.get_token()), Cancelled);
  CHECK(server.calls().size() == 1);
}

TEST_CASE("A request is not sent once a stop was requested") {
  HttpServer server([](const HttpCall&) { return HttpReply{}; });
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_AS(HttpClient().send({"GET", server.url()}, stop.get_token()), Cancelled);
  CHECK(server.calls().empty());
}

TEST_CASE("A body beyond the limit of memory is an error, but not for a file") {
  const test::Folder folder;
  HttpServer server([](const HttpCall&) { return HttpReply{200, std::string(1000, 'x')}; });
  HttpOptions options;
  options.most_in_memory = 999;
  CHECK(contains(error_of([&] { get(server.url(), options); }), "longer than 999 bytes"));
  CHECK(server.calls().size() == 1);
  HttpRequest request{"GET", server.url()};
  request.to_file = folder / "x";
  HttpClient(options).send(request);
  CHECK(text_of(folder / "x").size() == 1000);
}

TEST_CASE("A file gets the body of the attempt that succeeded") {
  const test::Folder folder;
  std::atomic<int> count = 0;
  HttpServer server([&](const HttpCall&) {
    ++count;
    if (count == 1) return HttpReply{200, "a long body that is cut", {}, Fault::CUT};
    if (count == 2) return HttpReply{500, "an error"};
    return HttpReply{200, "short"};
  });
  Pauses pauses;
  HttpRequest request{"GET", server.url()};
  request.to_file = folder / "x";
  HttpClient(pauses.options()).send(request);
  CHECK(text_of(folder / "x") == "short");
}

TEST_CASE("Files that cannot be read or written are errors with their path, and nothing is tried again") {
  const test::Folder folder;
  HttpServer server([](const HttpCall&) { return HttpReply{}; });
  std::ofstream(folder / "data") << "0123";
  HttpClient client;
  CHECK(contains(error_of([&] {
                   client.send({"PUT", server.url(), {}, FilePart{folder / "none"}});
                 }),
                 "none: cannot be read: No such file"));
  CHECK(contains(error_of([&] {
                   client.send({"PUT", server.url(), {}, FilePart{folder / "data", 2, 3}});
                 }),
                 "data: has 4 bytes"));
  HttpRequest request{"GET", server.url()};
  request.to_file = folder / "no" / "folder";
  CHECK(contains(error_of([&] { client.send(request); }), "folder: cannot be written: No such file"));
  CHECK(server.calls().empty());
}

TEST_CASE("Redirects are followed as often as allowed, and do not get the Authorization of another server") {
  HttpServer target([](const HttpCall&) { return HttpReply{200, "there"}; });
  HttpServer server([&](const HttpCall&) {
    return HttpReply{302, "", {"Location: " + target.url() + "/t?sig=secret"}};
  });
  HttpRequest request{"GET", server.url(), {{"Authorization", "Bearer abcdefgh"}}};
  const std::string error = error_of([&] { HttpClient().send(request); });
  CHECK(contains(error, "the server redirects to " + target.url() + "/t"));
  CHECK_FALSE(contains(error, "secret"));
  request.redirects = 1;
  CHECK(HttpClient().send(request).body == "there");
  CHECK_FALSE(target.calls().at(0).headers.contains("authorization"));
}

TEST_CASE("A header with a line break and a URL of another kind are rejected before anything is sent") {
  HttpServer server([](const HttpCall&) { return HttpReply{}; });
  HttpRequest request{"GET", server.url(), {{"X-A", "1\r\nX-B: 2"}}};
  CHECK(contains(error_of([&] { HttpClient().send(request); }), "X-A contains a line break"));
  CHECK(contains(error_of([&] { HttpClient().send({"GET", "file:///etc/passwd"}); }), "begins with http"));
  CHECK(contains(error_of([&] { HttpClient().send({"GET", server.url() + "/a b"}); }), "percent-encoded"));
  CHECK(server.calls().empty());
}

TEST_CASE("Options out of range are rejected with their value") {
  const auto error = [](auto change) {
    HttpOptions options;
    change(options);
    return error_of([&] { HttpClient client(options); });
  };
  CHECK(contains(error([](HttpOptions& o) { o.connect_limit = milliseconds(0); }),
                 "connect_limit must be above 0, not 0"));
  CHECK(contains(error([](HttpOptions& o) { o.stall_limit = milliseconds(999); }), "not 999"));
  CHECK(contains(error([](HttpOptions& o) { o.least_speed = 0; }), "least_speed must be at least 1 byte per second"));
  CHECK(contains(error([](HttpOptions& o) { o.total_limit = milliseconds(-1); }), "total_limit"));
  CHECK(contains(error([](HttpOptions& o) { o.retry.attempts = 0; }), "attempts must be at least 1, not 0"));
  CHECK(contains(error([](HttpOptions& o) { o.retry.first_pause = milliseconds(-1); }), "pauses"));
}

TEST_CASE("URLs are shown without user, password, query and fragment") {
  CHECK(shown_url("https://user:pass@host:1/a@b?x=1#y") == "https://host:1/a@b");
  CHECK(shown_url("https://host?x=@/") == "https://host");
  CHECK(shown_url("http://user:pa/ssWORD@host:9/x") == "http://host:9/x");
  CHECK(shown_url("http://user:pa#ss?WORD@host/x?y") == "http://host/x");
  CHECK(shown_url("http://AKIA:s3/cr+et") == "http://***");
  CHECK(shown_url("http://[::1]:80/a@b") == "http://[::1]:80/a@b");
  CHECK(shown_url("s3://bucket/key") == "s3://bucket/key");
  CHECK(shown_url("nothing") == "nothing");
}

TEST_CASE("Percent-encoding keeps unreserved characters, and decoding reverses it") {
  CHECK(percent_encoded("a b/c+d=\xc3\xa9~-_.") == "a%20b%2Fc%2Bd%3D%C3%A9~-_.");
  CHECK(percent_encoded("a/b c", true) == "a/b%20c");
  CHECK(percent_decoded("a%20b%2Fc%c3%A9") == "a b/c\xc3\xa9");
  CHECK(percent_decoded("100%, 5%2, %zz+") == "100%, 5%2, %zz+");
}

}  // namespace composer::http_test
