// Precompiled: what most test files pay for.
#pragma once
#include "composer/pch.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
