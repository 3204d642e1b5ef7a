// error: conversion from .*int.* to .*composer::Time
#include "composer/core/time.h"

composer::Time length = 5;
