"""Measuring on another machine, over TVM's tracker."""
