// A plugin of g++ that halves the time of a build. The inline code of libtorch's headers uses thousands of templates;
// g++ puts off instantiating them until the end of a source, and writes a precompiled header before that: each source
// would then instantiate them anew, for 5 to 10 s. `#pragma composer_instantiate`, at the end of a header that is to be
// precompiled, does it there, once. Without the plugin the pragma is skipped.

// In this order: otherwise g++'s headers do not compile.
// clang-format off
#include <gcc-plugin.h>
#include <cp/cp-tree.h>
#include <c-family/c-pragma.h>
#include <plugin-version.h>
// clang-format on

int plugin_is_GPL_compatible;  // asked for by g++, of code that runs within it

namespace {
void instantiate(cpp_reader*) { instantiate_pending_templates(0); }
void add_pragma(void*, void*) { c_register_pragma(nullptr, "composer_instantiate", instantiate); }
}  // namespace

int plugin_init(plugin_name_args* plugin, plugin_gcc_version* version) {
  if (!plugin_default_version_check(version, &gcc_version)) return 1;
  register_callback(plugin->base_name, PLUGIN_PRAGMAS, add_pragma, nullptr);
  return 0;
}
