package main

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory holds the series of one test, as they were written; a Prometheus' own storage would bring its clouds along.
type memory []storage.Series

func (m *memory) add(name labels.Labels, values []parser.SequenceValue, every time.Duration) {
	var samples []chunks.Sample
	for number, value := range values {
		if !value.Omitted {
			samples = append(samples, sample{int64(number) * every.Milliseconds(), value.Value})
		}
	}
	*m = append(*m, storage.NewListSeries(name, samples))
}

func (m memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }

func (m memory) Select(
	_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
) storage.SeriesSet {
	var chosen memory
	for _, each := range m {
		if matches(each.Labels(), matchers) {
			chosen = append(chosen, each)
		}
	}
	return &set{series: chosen, at: -1}
}

func matches(name labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(name.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

func (m memory) LabelValues(
	context.Context, string, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) LabelNames(
	context.Context, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) Close() error { return nil }

type set struct {
	series memory
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

type sample struct {
	at    int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
